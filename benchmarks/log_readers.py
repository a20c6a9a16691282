"""Read one log with several readers through Spark, from ignis and from Kafka, by the same code.

Beside them stand two that are no queues, and say what Spark and the readers' tables take. "Python"
is a Python source that only reads Arrow files, all in one micro-batch: the least that a source in
Python can take. "Parquet" are files that Spark reads itself.

    python -m benchmarks.log_readers [--messages 40000] [--readers 1 3 10] [--rounds 1]

Each reader is a streaming query that writes each message once into a table of its own. What is
measured is the time from the start of the first query until the end of the last one. A broker and
its connector are downloaded from Maven Central. The full run has 4,000,000 messages of 100 bytes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from benchmarks.bare import BareSource
from benchmarks.peers.contenders.spark_kafka import Kafka
from benchmarks.peers.servers import Servers
from benchmarks.peers.spark import PARTITIONS, session
from pyspark_ignis.tuning import MAX_BATCH_BYTES, UNLIMITED
from queue_core import Store

_TITLE = "messages a second, in all; times those of Kafka"
_COLUMNS = (
    "cast(concat('k', cast(id % 5000 as string)) as binary) as key",
    "cast(rpad(cast(id as string), 100, 'x') as binary) as value",
)


class Place:
    """A format with its address, and the name of what is read: all in which the code differs."""

    def __init__(self, name: str, kind: str, address: dict[str, str]) -> None:
        self.name = name
        self.kind = kind
        self.address = address

    def write(self, rows: DataFrame, **options: str) -> None:
        """Write all messages."""
        rows.write.format(self.kind).mode("append").options(**options).save()

    def read(self, batch: int) -> DataFrame:
        """Return a stream of all messages."""
        reader = session().readStream.format(self.kind).options(**self.address)
        reader = reader.option("startingOffsets", "earliest")
        return reader.option("maxOffsetsPerTrigger", batch).load().select("key", "value")


class Parquet(Place):
    """The same messages in files that Spark reads itself, eight of them in each batch."""

    def __init__(self, folder: Path) -> None:
        super().__init__("Parquet", "parquet", {"path": str(folder)})

    def write(self, rows: DataFrame, **options: str) -> None:
        """Write as many files as four batches have."""
        super().write(rows.repartition(4 * PARTITIONS), **self.address)

    def read(self, batch: int) -> DataFrame:
        """Return a stream of all messages; a batch is a quarter of the files."""
        reader = session().readStream.format("parquet").schema("key binary, value binary")
        return reader.option("maxFilesPerTrigger", PARTITIONS).load(self.address["path"])


class Python(Place):
    """The same messages in Arrow files, by a Python source that only reads them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__("Python", "bare", {"path": str(folder)})
        session().dataSource.register(BareSource)

    def write(self, rows: DataFrame, **options: str) -> None:
        """Write a file for each partition."""
        super().write(rows, **self.address)


def seconds_of(place: Place, readers: int, messages: int, folder: Path) -> float:
    """Return the seconds that some readers take together; each has each message once."""
    queries: list[Any] = []
    begin = time.perf_counter()
    for number in range(readers):
        table = folder / str(number)
        writer = place.read(-(-messages // 4)).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(table) + ".checkpoint")
        queries.append(writer.trigger(availableNow=True).start(str(table)))
    for query in queries:
        query.awaitTermination()
    taken = time.perf_counter() - begin
    for number in range(readers):
        found = session().read.parquet(str(folder / str(number)))
        counted = (found.count(), found.select("value").distinct().count())
        assert counted == (messages, messages), f"{place.name}: a reader has {counted}"
    return taken


def places(servers: Servers, messages: int) -> list[Place]:
    """Return the same messages in ignis, in Kafka and in files."""
    rows = session().range(0, messages, 1, PARTITIONS).selectExpr(*_COLUMNS)
    path = str(servers.data("ignis") / "store")
    Store.open(path).close()
    ours = Place("ignis", "ignis", {"path": path, "read": "log", "queue": "orders"})
    shape = {"shards": str(PARTITIONS), "key": "key", "log": "7 days"}
    ours.write(rows, path=path, queue="orders", **shape)
    kafka = Kafka()
    kafka.start(servers)
    kafka.create("orders")
    broker = {"kafka.bootstrap.servers": kafka.broker}
    theirs = Place("Kafka", "kafka", {**broker, "subscribe": "orders"})
    theirs.write(rows, topic="orders", **broker)
    bare: list[Place] = [
        Python(servers.data("python") / "messages"),
        Parquet(servers.data("parquet") / "messages"),
    ]
    for place in bare:
        place.write(rows)
    return [ours, theirs, *bare]


def main() -> None:
    """Measure in turn, and print."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--messages", type=int, default=40_000)
    arguments.add_argument("--readers", type=int, nargs="+", default=[1, 3, 10])
    arguments.add_argument("--rounds", type=int, default=1)
    given = arguments.parse_args()
    session().conf.set(MAX_BATCH_BYTES, UNLIMITED)
    shown = Table("readers", "round", "Kafka", "ignis", "Python", "Parquet", title=_TITLE)
    console = Console()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="logs-")))
        servers = stack.enter_context(Servers(folder.absolute()))
        all_places = places(servers, given.messages)
        for readers in given.readers:
            for number in range(given.rounds):
                rates = {}
                for place in all_places:
                    at = folder.absolute() / f"{place.name}-{readers}-{number}"
                    taken = seconds_of(place, readers, given.messages, at)
                    rates[place.name] = readers * given.messages / taken
                kafka = rates.pop("Kafka")
                ratios = [f"{rate:,.0f}; {rate / kafka:.2f}" for rate in rates.values()]
                cells = (str(readers), str(number), f"{kafka:,.0f}", *ratios)
                console.print(" | ".join(cells))
                shown.add_row(*cells)
    console.print(shown)


if __name__ == "__main__":
    main()
