"""What every peer of Spark can do, and the session that they share."""

from __future__ import annotations

import compileall
import os
import sys
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers import fetch
from benchmarks.peers.peer import Client, Missing
from benchmarks.peers.servers import Servers
from pyspark_ignis import tuned

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("benchmarks", "ignis_sink", "ignis_source", "pyspark_ignis", "queue_core")
#: Partitions of what is written, shards, and partitions of a topic.
PARTITIONS = 8
#: Kafka's connector: the newest on Maven Central, and the libraries that it asks for.
CONNECTOR = "4.2.0"
CLIENTS = "3.9.2"
_JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{CONNECTOR}",
    f"org.apache.kafka:kafka-clients:{CLIENTS}",
    "org.apache.commons:commons-pool2:2.13.1",
)


class SparkPeer(ABC):
    """A contender with a source and a sink."""

    name: ClassVar[str]
    conditions: str
    #: The column of such messages.
    body: ClassVar[str] = "body"

    @abstractmethod
    def start(self, servers: Servers) -> None:
        """Start what is needed; raises `Missing`."""

    def producer(self) -> tuple[type[Client], str]:
        """Return a client of plain Python with its address; messages have one column."""
        raise NotImplementedError

    @abstractmethod
    def create(self, place: str) -> None:
        """Make a queue, a topic or a folder of a new name."""

    def packed(self, rows: DataFrame) -> DataFrame:
        """Return rows as the sink takes them."""
        return rows

    @abstractmethod
    def writer(self, writing: Any, place: str) -> Any:
        """Return ``rows.write`` or ``rows.writeStream`` with format and options set."""

    @abstractmethod
    def stream(self, place: str, like: DataFrame) -> DataFrame:
        """Return all messages of a place, once, with the columns of *like*."""

    @abstractmethod
    def drop(self, place: str) -> None:
        """Free the disk of a place."""

    @abstractmethod
    def again(self, place: str, rows: DataFrame) -> None:
        """Let a place have *rows* once more, after a query has read them."""


@cache
def connector() -> tuple[Path, ...]:
    """Return the jars of Kafka's connector; raises `Missing`."""
    return tuple(fetch.jar("kafka-connector", coordinate) for coordinate in _JARS)


@cache
def session() -> SparkSession:
    """
    Return the session of this process, of two cores, with Kafka's connector if it can be had.

    It is built as the how-to page advises, with `tuned`, for all peers. Workloads with small rows
    set the rest. The code of this checkout has its bytecode, as an installed package does.
    """
    for package in _PACKAGES:
        compileall.compile_dir(_ROOT / package, quiet=2)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").appName("peers")
    try:
        jars = os.pathsep.join(str(path) for path in connector())
    except Missing:
        jars = ""
    for key, value in {
        "spark.driver.extraClassPath": jars,
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    spark = tuned(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
