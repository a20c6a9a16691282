"""Route the rows of a write into several queues by a column; runs on executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ignis_sink.message import Intake
from queue_core.errors import NoSuchQueue, SchemaMismatch
from queue_core.segments.stager import RUN_BYTES
from queue_core.segments.staging_spec import StagingSpec
from queue_core.segments.storage import Storage
from queue_core.values.model import Staged
from queue_core.values.names import check_queue, listed, nearest

#: The most bytes of rows that wait in a task for the files of their queues.
MOST_WAITING = 4 * RUN_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTarget:
    """The queues into which a column routes rows, and the storage of their segments."""

    #: Not shown, as it may have credentials.
    storage: str = field(repr=False)
    #: The id of the store.
    store: str | None
    #: The column with the name of the queue of each row; queues do not get it.
    column: str
    #: The queues that take the rows, by name.
    specs: Mapping[str, StagingSpec]
    #: Why other queues of the store do not take them, by name.
    unfit: Mapping[str, str]
    #: What queues that do not exist are like; None: their rows are refused.
    template: StagingSpec | None

    def check_there(self, batch: int) -> None:
        """Do nothing: a write into several queues never creates the store."""

    def spec_of(self, queue: str) -> StagingSpec:
        """
        Return what one queue needs, whose name `check_all` has seen.

        Raises `SchemaMismatch` and `BadName`.
        """
        if queue in self.specs:
            return self.specs[queue]
        if queue in self.unfit:
            raise SchemaMismatch(f"column {self.column!r} names a queue: {self.unfit[queue]}")
        assert self.template is not None, "check_all has refused the name"
        return replace(self.template, queue=check_queue(queue), schema_version=1)

    def check_all(self, names: list[str]) -> None:
        """Raise `NoSuchQueue` that names all of some queues that do not exist."""
        unknown = [each for each in names if each not in self.specs and each not in self.unfit]
        if not unknown or self.template is not None:
            return
        what, near = "queues", ""
        if len(unknown) == 1:
            what, near = "a queue", nearest(unknown[0], self.specs)
        raise NoSuchQueue(
            f"column {self.column!r} names {what} that the store does not have: "
            f"{listed(unknown)}{near}; nothing was loaded. Create them first, or set the option "
            "template to a queue whose columns, shards, key and settings new queues get"
        )

    def intake(self) -> Router:
        """Return what takes the rows of one task."""
        return Router(self, Storage.open(self.storage).of_store(self.store))


class Router:
    """Takes the rows of a task; `finish` returns the staged segments of each queue."""

    def __init__(self, target: RoutedTarget, storage: Storage) -> None:
        self._target = target
        self._storage = storage
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._intakes: dict[str, Intake] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; they are divided among the queues when there are many."""
        if not batch.num_rows:
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= RUN_BYTES:
            self._divide()

    def finish(self) -> dict[str, tuple[Staged, ...]]:
        """Write the waiting rows; return the segments of each queue, which are durable."""
        self._divide()
        return {
            name: staged
            for intake in self._intakes.values()
            for name, staged in intake.finish().items()
        }

    def discard(self) -> None:
        """Remove the staged segments if possible."""
        for intake in self._intakes.values():
            intake.discard()

    def _divide(self) -> None:
        """Sort the rows by queue, each queue's in their order, and pass them on."""
        if not self._batches:
            return
        rows = pa.Table.from_batches(self._batches)
        self._batches, self._bytes = [], 0
        target = self._target
        column = rows.column(target.column).combine_chunks()
        if column.null_count:
            raise SchemaMismatch(
                f"column {target.column!r} is null in {column.null_count} rows, and must name the "
                "queue of each row; nothing was loaded"
            )
        rows = rows.drop_columns([target.column])
        coded = column.cast(pa.string()).dictionary_encode()
        names, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        target.check_all(names)
        if len(names) > 1:
            order = np.argsort(codes, kind="stable")
            rows, codes = rows.take(pa.array(order)), codes[order]
        ends = np.searchsorted(codes, np.arange(len(names)), side="right")
        begin = 0
        for name, end in zip(names, ends.tolist(), strict=True):
            intake = self._intakes.get(name)
            if intake is None:
                intake = self._intakes[name] = Intake(self._storage, target.spec_of(name))
            intake.add(rows.slice(begin, end - begin))
            begin = end
        while sum(intake.waiting for intake in self._intakes.values()) > MOST_WAITING:
            max(self._intakes.values(), key=lambda each: each.waiting).flush()
