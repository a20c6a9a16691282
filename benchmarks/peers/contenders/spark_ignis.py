"""ignis through Spark, with its catalog in SQLite and in PostgreSQL."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from benchmarks.peers.contenders.ignis import IgnisClient, address_of
from benchmarks.peers.peer import Client
from benchmarks.peers.servers import Servers
from benchmarks.peers.spark import PARTITIONS, SparkPeer, session
from queue_core import Store


class _Ignis(SparkPeer):
    conditions = (
        "through Spark: segments and commits synced, checksums, exactly once, without metadata "
        "columns, what is read is deleted; with a key where the rows have one"
    )
    _address: str

    def producer(self) -> tuple[type[Client], str]:
        """The client of the other workloads."""
        return IgnisClient, self._address

    def create(self, place: str) -> None:
        """The first write creates the queue."""

    def writer(self, writing: Any, place: str) -> Any:
        """With a key, if there is a column of that name."""
        options = {"queue": place, "shards": str(PARTITIONS)} | self._options()
        # A writer has no public way to its columns.
        if "key" in writing._df.columns:
            options["key"] = "key"
        return writing.format("ignis").options(**options)

    def stream(self, place: str, like: DataFrame) -> DataFrame:
        """All messages in one micro-batch."""
        reader = session().readStream.format("ignis").options(**self._options())
        options = {"queue": place, "includeMetadata": "false", "numPartitions": str(PARTITIONS)}
        return reader.options(**options).load()

    def drop(self, place: str) -> None:
        """Drop the queue with its files; nobody else writes."""
        with Store(address_of(self._address)) as store:
            queue = store.queue(place).admin
            queue.deactivate()
            queue.drop()
            store.admin.vacuum(grace=0.0)

    def again(self, place: str, rows: DataFrame) -> None:
        """The query has deleted the messages that it has read."""
        self.writer(rows.write, place).mode("append").save()

    def _options(self) -> dict[str, str]:
        return address_of(self._address)._asdict()


class SparkIgnisSqlite(_Ignis):
    """An embedded store."""

    name = "ignis, SQLite"

    def start(self, servers: Servers) -> None:
        """A folder."""
        self._address = str(servers.data("spark-ignis-sqlite") / "store")


class SparkIgnisPostgres(_Ignis):
    """A catalog in PostgreSQL, and segments in a folder."""

    name = "ignis, PostgreSQL"

    def start(self, servers: Servers) -> None:
        """A database of its own."""
        url = servers.catalog("spark_ignis")
        self._address = f"{url}|{servers.data('spark-ignis-postgres') / 'segments'}"
