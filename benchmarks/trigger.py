"""Measure what a small micro-batch costs, from queue to queue, beside a bare source and sink.

    python -m benchmarks.trigger [--messages 1 100 1000] [--rounds 10] [--postgresql]

Two queries run in one Spark session, and each trigger follows the last one at once. One copies a
queue into another. The other copies Arrow files with the same rows, which it syncs, and keeps
nothing but Spark's offsets. They take turns: a round gives each a burst of small batches, and the
other one is idle. All batches have one partition. The times are those of Spark's progress reports,
in total and by part. The first batch of each burst is left out, because its time begins before its
messages are there, and so are the first rounds, in which the processes of Spark start.

Spark's workers search for garbage after each task, while the driver goes on. ignis lets them pass
over what was imported. So the same is measured again with files that do this too. It comes last,
because all queries over files share their workers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_catalog, address_in
from benchmarks.bare import BareSource, BareStreamReader, BareStreamWriter, FilePartition
from benchmarks.session import local_session
from queue_core import Store
from queue_core.support.collector import pass_over_imports
from queue_core.support.durable import sync
from queue_core.values.address import Address

SCHEMA = pa.schema([("number", pa.int64()), ("body", pa.string())])
BODY = "x" * 100
#: The batches of a burst, after the first one, which is left out.
COUNTED = 3
WARMING = 3
#: Seconds that an idle source waits in `latestOffset`, as the queue's does.
IDLE_SECONDS = 0.2

FILES, QUEUES = "files", "queues"
#: The milliseconds of each part of a batch, and those of `TOTAL`.
Durations = dict[str, int]
TOTAL = "triggerExecution"


class FilesInTurn(BareStreamReader):
    """Reads one file in each micro-batch; the offset is the number of files."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Return the offset after the next file; wait a moment if there is none."""
        following = start["batch"] + 1
        end = time.monotonic() + IDLE_SECONDS
        while not self._file(following).exists():
            if time.monotonic() > end:
                return start
            time.sleep(0.002)
        return {"batch": following}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[FilePartition]:
        """Return one partition for each file."""
        numbers = range(start["batch"] + 1, end["batch"] + 1)
        return [FilePartition(str(self._file(number))) for number in numbers]

    def _file(self, number: int) -> Path:
        return Path(self._folder) / f"{number:06}.arrow"


class BareInTurn(BareSource):
    """`format("bare_in_turn")`: the Arrow files of a folder, one in each micro-batch."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "bare_in_turn"

    def streamReader(self, schema: StructType) -> FilesInTurn:
        """Return the reader."""
        return FilesInTurn(self.options["path"])


class LeanReader(FilesInTurn):
    """The same, without searches for garbage in what was imported."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the batches of a file."""
        pass_over_imports()
        return super().read(partition)


class LeanWriter(BareStreamWriter):
    """The same, without searches for garbage in what was imported."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a partition into one file."""
        pass_over_imports()
        return super().write(iterator)


class LeanInTurn(BareInTurn):
    """`format("lean_in_turn")`: the same, without searches for garbage in what was imported."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lean_in_turn"

    def streamReader(self, schema: StructType) -> LeanReader:
        """Return the reader."""
        return LeanReader(self.options["path"])

    def streamWriter(self, schema: StructType, overwrite: bool) -> LeanWriter:
        """Return the writer."""
        return LeanWriter(self.options, schema)


class Contender:
    """A running query, and how it is given a batch of rows."""

    def __init__(self, query: StreamingQuery, give: Callable[[pa.Table], object]) -> None:
        self._query = query
        self._give = give
        # The first batch may be empty.
        self._seen = 0
        self._await(0)

    def burst(self, rows: pa.Table) -> list[Durations]:
        """Give some batches of the same rows; return the durations of all but the first."""
        for _ in range(COUNTED + 1):
            self._give(rows)
        self._await(self._seen + COUNTED + 1)
        found = {
            progress.batchId: progress
            for progress in self._query.recentProgress
            if progress.numInputRows and progress.batchId > self._seen
        }
        numbers = sorted(found)
        if [found[number].numInputRows for number in numbers] != [rows.num_rows] * (COUNTED + 1):
            raise RuntimeError(f"not {COUNTED + 1} batches of {rows.num_rows} rows: {found}")
        self._seen = numbers[-1]
        return [found[number].durationMs for number in numbers[1:]]

    def _await(self, batch: int) -> None:
        """Wait until a batch is done."""
        end = time.monotonic() + 120.0
        while (last := self._query.lastProgress) is None or last.batchId < batch:
            if (error := self._query.exception()) is not None:
                raise error
            if time.monotonic() > end:
                raise RuntimeError(f"batch {batch} is not done: {last}")
            # Seldom: each look takes the processor from the batches.
            time.sleep(0.25)


@contextmanager
def bare(spark: SparkSession, folder: Path, kind: type[BareInTurn]) -> Iterator[Contender]:
    """Run a query that copies files."""
    spark.dataSource.register(kind)
    source, target = folder / "files-in", folder / "files-out"
    source.mkdir(parents=True)
    target.mkdir()
    count = 0

    def give(rows: pa.Table) -> None:
        nonlocal count
        count += 1
        written = source / "written"
        with pa.ipc.new_file(str(written), rows.schema) as writer:
            writer.write_table(rows)
        sync(written)
        written.rename(source / f"{count:06}.arrow")

    stream = spark.readStream.format(kind.name()).schema("number bigint, body string")
    writer = stream.load(str(source)).writeStream.format(kind.name()).option("sync", "true")
    query = writer.option("checkpointLocation", f"{folder}/of-files").start(str(target))
    try:
        yield Contender(query, give)
    finally:
        query.stop()


@contextmanager
def queues(
    spark: SparkSession, folder: Path, address: Address, messages: int
) -> Iterator[Contender]:
    """Run a query that copies a queue into another, at most so many messages at once."""
    source, target = f"in-{folder.name}", f"out-{folder.name}"
    with Store(address) as store:
        # As files have one partition, and all messages of a shard are in one.
        loaded = store.create_queue(source, SCHEMA, shards=1)
        store.create_queue(target, SCHEMA)
        options = {"catalog": address.catalog, "storage": address.storage}
        stream = spark.readStream.format("ignis").options(**options, queue=source)
        stream = stream.option("includeMetadata", "false").option("maxMessagesPerTrigger", messages)
        writer = stream.load().writeStream.format("ignis").options(**options, queue=target)
        query = writer.option("checkpointLocation", f"{folder}/of-queues").start()
        try:
            yield Contender(query, loaded.load)
        finally:
            query.stop()


def measure(
    spark: SparkSession,
    folder: Path,
    address: Address,
    kind: type[BareInTurn],
    messages: int,
    rounds: int,
) -> list[dict[str, list[Durations]]]:
    """Return the durations of the batches of each contender in each round."""
    rows = pa.table({"number": range(messages), "body": [BODY] * messages}, schema=SCHEMA)
    with (
        bare(spark, folder, kind) as files,
        queues(spark, folder, address, messages) as ours,
    ):
        contenders = {FILES: files, QUEUES: ours}
        return [
            {name: contender.burst(rows) for name, contender in contenders.items()}
            for _ in range(WARMING + rounds)
        ][WARMING:]


def shown(kind: type[BareInTurn], messages: int, turns: list[dict[str, list[Durations]]]) -> Table:
    """Return the medians of all batches by part, and the median ratio of the turns."""
    ratios = [median(turn[QUEUES], TOTAL) / median(turn[FILES], TOTAL) for turn in turns]
    ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    title = f"a batch of {messages:,}, median ms\n{QUEUES} / {kind.name()}, by turns: {ratio}"
    table = Table(title=title, min_width=60)
    for column in ("part", FILES, QUEUES, "more"):
        table.add_column(column, justify="right" if column != "part" else "left")
    files, ours = ([each for turn in turns for each in turn[name]] for name in (FILES, QUEUES))
    parts = {part for batch in files + ours for part in batch} - {TOTAL}
    for part in (TOTAL, *sorted(parts)):
        other, own = median(files, part), median(ours, part)
        table.add_row(part, *(f"{ms:.1f}" for ms in (other, own, own - other)))
    return table


def median(batches: Sequence[Durations], part: str) -> float:
    """Return the median of the milliseconds of a part."""
    return statistics.median(batch.get(part, 0) for batch in batches)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--rounds", type=int, default=10)
    add_catalog(parser)
    given = parser.parse_args()
    # As in an installation, where modules are compiled once.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    console = Console(width=120)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ignis-trigger-")))
        address = stack.enter_context(address_in(folder, given))
        spark = local_session("trigger")
        for kind in (BareInTurn, LeanInTurn):
            for messages in given.messages:
                place = folder / f"{kind.name()}-{messages}"
                turns = measure(spark, place, address, kind, messages, given.rounds)
                console.print(shown(kind, messages, turns))


if __name__ == "__main__":
    main()
