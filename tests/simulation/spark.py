"""Spark's side of a streaming query: its log on disk, and its calls of source and sink, in order.

The calls are those that Spark 4.3 makes. A query that is killed at any of them is run again from
its log, as Spark does: a batch that is logged and not committed is planned again, with nothing
asked for before it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import ignis_sink.planning
import ignis_sink.publishing
from ignis_sink.load import LoadStreamWriter, stage
from ignis_sink.message import LoadMessage, SettleMessage, Target
from ignis_sink.options import SinkOptions
from ignis_sink.settle import SettleStreamWriter, gather
from ignis_source.admission import AdmittedReader
from ignis_source.options import SourceOptions
from queue_core import Store
from queue_core.catalog.identity import handle
from queue_core.values.address import Address
from tests.factories import ORDERS
from tests.simulation.world import World, current

MESSAGES = pa.schema([*ORDERS, pa.field("_message_id", pa.int64(), nullable=False)])


class LogTaken(Exception):
    """Another driver has written this entry of the log: Spark ends the query."""


@dataclass(frozen=True)
class Checkpoint:
    """A query's folder: the entries ``offsets/N`` and ``commits/N``."""

    folder: Path

    @staticmethod
    def new(folder: Path) -> Checkpoint:
        """Make the folder of a query that has not run yet."""
        (folder / "offsets").mkdir(parents=True)
        (folder / "commits").mkdir()
        return Checkpoint(folder)

    @property
    def last(self) -> int | None:
        """The number of the last batch that was planned."""
        return max((int(path.name) for path in (self.folder / "offsets").iterdir()), default=None)

    def offset(self, number: int) -> dict[str, Any]:
        """Return where a batch ends."""
        found: dict[str, Any] = json.loads(
            self._entry("offsets", number).read_text().split("\n")[2]
        )
        return found

    def is_committed(self, number: int) -> bool:
        """Return whether a batch is done."""
        return self._entry("commits", number).exists()

    def plan(self, number: int, end: dict[str, Any], now: int) -> None:
        """Log a batch."""
        self._write("offsets", number, f'v1\n{{"batchTimestampMs":{now}}}\n{json.dumps(end)}')

    def commit(self, number: int) -> None:
        """Log that a batch is done."""
        self._write("commits", number, "v1\n{}")

    def copy_to(self, folder: Path) -> Checkpoint:
        """Copy the present folder."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return Checkpoint(folder)

    def _entry(self, kind: str, number: int) -> Path:
        return self.folder / kind / str(number)

    def _write(self, kind: str, number: int, text: str) -> None:
        try:
            with self._entry(kind, number).open("x") as file:
                file.write(text)
        except FileExistsError:
            raise LogTaken(f"{kind}/{number}") from None


class Sink:
    """The work of a query with a batch; a subclass is a sink of ignis."""

    def asks(self) -> None:
        """Note that the source is asked for a batch, which it may fire at once."""

    def begins(self, rows: list[pa.RecordBatch]) -> None:
        """Note the rows of a batch before anything is done with them."""

    def write(self, rows: list[pa.RecordBatch]) -> Any:
        """Run a task; return its commit message."""
        raise NotImplementedError

    def commit(self, messages: list[Any], number: int) -> None:
        """Commit a batch."""
        raise NotImplementedError

    def committed(self, number: int) -> None:
        """Note that the commit of a batch has returned."""

    def acknowledged(self, end: dict[str, Any]) -> None:
        """Note that the source has acknowledged all batches up to *end*."""


class LoadSink(Sink):
    """Loads a queue."""

    def __init__(self, address: Address, query: str, checkpoint: Path, queue: str) -> None:
        self._query = query
        self._writer_options = SinkOptions.of(
            {
                "catalog": address.catalog,
                "storage": address.storage,
                "queue": queue,
                "onFull": "fail",
                "checkpointLocation": str(checkpoint),
            }
        )
        self._address, self._queue = address, queue

    def write(self, rows: list[pa.RecordBatch]) -> LoadMessage:
        """Stage the rows of a partition."""
        store = _store_at(self._address)
        info = store.queue(self._queue).info
        identity = store.storage.identity
        specs = {info.name: info}
        target = Target(storage=self._address.storage, specs=specs, store=identity)
        return replace(stage(rows, target, digested=True), query_id=self._query)

    def commit(self, messages: list[Any], number: int) -> None:
        """Publish a batch."""
        LoadStreamWriter(self._writer_options, messages[0].target).commit(messages, number)


class SettleSink(Sink):
    """Settles messages; *decide* names an outcome for each number."""

    def __init__(
        self, address: Address, query: str, checkpoint: Path, queue: str, consumer: str, decide: Any
    ) -> None:
        self._query, self.decide = query, decide
        self._options = SinkOptions.of(
            {
                "catalog": address.catalog,
                "storage": address.storage,
                "queue": queue,
                "mode": "settle",
                "consumer": consumer,
                "checkpointLocation": str(checkpoint),
            }
        )

    def write(self, rows: list[pa.RecordBatch]) -> SettleMessage:
        """Gather the outcomes of a partition."""
        outcomes = []
        for batch in rows:
            decided = [self.decide(number) for number in batch.column("number").to_pylist()]
            ids = batch.column("_message_id")
            outcomes.append(pa.record_batch({"_message_id": ids, "outcome": decided}))
        return replace(gather(outcomes), query_id=self._query)

    def commit(self, messages: list[Any], number: int) -> None:
        """Settle a batch."""
        SettleStreamWriter(self._options).commit(messages, number)


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query as a person has written it: started again, it is the same."""

    world: World
    address: Address
    queue: str
    checkpoint: Checkpoint
    sink: Sink
    #: How it acknowledges; "log": it reads the log, and acknowledges nothing.
    ack: str
    most: int
    #: Seconds between two looks of an idle query.
    idle: float = 2.0

    def run(self) -> None:
        """Live one life of the query; it ends with an error, or by being killed."""
        world, log = self.world, self.checkpoint
        reader = AdmittedReader(self._source(), from_arrow_schema(MESSAGES))
        number = log.last
        if number is None:
            start, number = reader.initialOffset(), 0
        elif log.is_committed(number):
            start, number = log.offset(number), number + 1
        else:
            start = log.offset(number - 1) if number else reader.initialOffset()
            end = log.offset(number)
            self._run_batch(reader, number, start, end)
            start, number = end, number + 1
        limit = ReadMaxRows(self.most) if self.most else ReadAllAvailable()
        while True:
            world.seam("spark: between batches")
            self.sink.asks()
            end = reader.latestOffset(start, limit)
            self.sink.acknowledged(start)
            if end == start and number:
                world.seam("spark: idle", sleep=self.idle)
                continue
            reader.reportLatestOffset()
            log.plan(number, end, world.now // 1000)
            world.seam("spark: planned")
            if number:
                reader.commit(start)
            self._run_batch(reader, number, start, end)
            start, number = end, number + 1

    def _run_batch(
        self,
        reader: AdmittedReader,
        number: int,
        start: dict[str, Any],
        end: dict[str, Any],
    ) -> None:
        world, sink = self.world, self.sink
        parts = [list(reader.read(part)) for part in reader.partitions(start, end)] or [[]]
        sink.begins([batch for part in parts for batch in part])
        messages = []
        for part in parts:
            world.seam("spark: task")
            if world.random.random() < 0.05:
                # A task that Spark runs again has staged its rows, and nobody commits those.
                sink.write(part)
            messages.append(sink.write(part))
        world.seam("spark: tasks done")
        sink.commit(messages, number)
        sink.committed(number)
        world.seam("spark: batch published")
        self.checkpoint.commit(number)
        world.note(f"batch {number} of {self.checkpoint.folder.name} committed, {end}")

    def _source(self) -> SourceOptions:
        given = {"catalog": self.address.catalog, "storage": self.address.storage}
        given |= {"queue": self.queue, "idleWait": "0.01"}
        if self.ack == "log":
            limit = {"maxOffsetsPerTrigger": str(self.most)} if self.most else {}
            return SourceOptions.of(given | limit | {"read": "log", "startingOffsets": "earliest"})
        given |= {"ack": self.ack, "tasks": "none"}
        if self.ack == "settle":
            given["consumer"] = self.checkpoint.folder.name
        if self.most:
            given["maxMessagesPerTrigger"] = str(self.most)
        return SourceOptions.of(given)


def _store_at(address: Address) -> Store:
    client = current()
    assert client is not None, "a sink belongs to a client"
    return client.store(Path(address.storage).name)


@contextmanager
def sinks() -> Iterator[None]:
    """Give each client's sink the stores of its own process."""
    modules = (handle, ignis_sink.planning, ignis_sink.publishing)
    known = [module.known_store for module in modules]
    for module in modules:
        module.known_store = _store_at
    try:
        yield
    finally:
        for module, function in zip(modules, known, strict=True):
            module.known_store = function
