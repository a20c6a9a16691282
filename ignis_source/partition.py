"""The partitions that executors get, and how they read them. Imports no SQL library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from queue_core.errors import DamagedSegment, IgnisError, OffsetsLost
from queue_core.support import faults, import_paths
from queue_core.support.collector import pass_over_imports
from queue_core.values.ipc import pack, unpack
from queue_core.values.model import ReadPlan, ScanTask
from queue_core.values.plan import partitions as spread
from queue_core.values.schema import AGE, LOG_METADATA, OFFSET, deserialize, output_schema, upgrade

if TYPE_CHECKING:
    from queue_core.selector import Condition

_OFFSET = LOG_METADATA.field(OFFSET)


@dataclass
class IgnisPartition(InputPartition):
    """Messages of some shards, each shard in order, as plain values."""

    plan: ReadPlan
    #: A condition on the messages to read, or the import path of a function.
    selector: str | None = None
    #: The time at which `_age` is measured, in microseconds; None: the condition uses no ages.
    now: int | None = None

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the messages that match as batches of exactly *schema*, as Spark requires."""
        # Before the rows: what is there now stays.
        pass_over_imports()
        if self.selector is None:
            for batch in self._read(schema.names):
                yield upgrade(batch, schema)
                faults.point("source.reading")
            return
        # Not at the top: streams select when they fire.
        from queue_core.selection.selection import visible

        columns = deserialize(self.plan.schema)
        known = output_schema(columns) if self.now is None else visible(columns)
        condition = condition_of(self.selector, known)
        stored = {"_loaded_at" if name == AGE else name for name in condition.columns}
        for batch in self._read(list(dict.fromkeys([*schema.names, *sorted(stored)]))):
            rows = batch
            if self.now is not None and AGE in condition.columns:
                # Not before: it imports the SQL library.
                from queue_core.selection.scan import with_moment

                rows = with_moment(batch, condition.columns, self.now)
            selected = batch.filter(condition.mask(rows))
            yield upgrade(selected.select(schema.names), schema)

    def _read(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of all messages."""
        # Not at the top: a query's start does not wait for what its executors import.
        from queue_core.segments.reader import read

        return read(self.plan, names)


@dataclass
class LogPartition(IgnisPartition):
    """Messages of logs; their tasks are in the order of shards and offsets."""

    #: The offset of the first message of each task.
    firsts: tuple[int, ...] = ()

    def _read(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of all messages; raises `OffsetsLost` if a file is gone."""
        # The log of a queue that has a column of this name is read without metadata.
        own = deserialize(self.plan.schema).names
        stored = [name for name in names if name != OFFSET or OFFSET in own]
        ends = np.cumsum([len(task) for task in self.plan.tasks])
        # For each task: the offset of a row minus its number in the partition.
        shifts = np.array(self.firsts) - np.concatenate([[0], ends[:-1]])
        at = 0
        try:
            # If nothing else is wanted, one column says how many rows there are.
            for batch in super()._read(stored or ["_shard"]):
                rows = np.arange(at, at + batch.num_rows)
                at += batch.num_rows
                offsets = pa.array(rows + shifts[np.searchsorted(ends, rows, side="right")])
                yield pa.record_batch(
                    [batch.column(name) if name in stored else offsets for name in names],
                    schema=pa.schema(
                        [batch.schema.field(name) if name in stored else _OFFSET for name in names]
                    ),
                )
        except DamagedSegment as error:
            raise self._lost(error) from error

    def _lost(self, error: DamagedSegment) -> IgnisError:
        """Return the error for a file that is missing, and *error* itself for damage."""
        from queue_core.segments.storage import Storage

        files = {task.segment.location for task in self.plan.tasks if task.segment.location}
        if not (gone := Storage.open(self.plan.storage).missing(files)):
            return error
        task, first = next(
            (task, first)
            for task, first in zip(self.plan.tasks, self.firsts, strict=True)
            if task.segment.location in gone
        )
        return OffsetsLost(
            f"the log of queue {task.queue!r}: the file {task.segment.location} with the messages "
            f"at offsets {first} to {first + len(task) - 1} of shard {task.shard} is gone. Either "
            "they were trimmed, and the file was removed, while the query was reading them, or the "
            "file was lost. Start the query again: if they were trimmed, it says so and what to do"
        )


@dataclass
class TablePartition(InputPartition):
    """A whole table, as Arrow IPC bytes: small enough to be part of Spark's plan."""

    arrow: bytes

    @staticmethod
    def of(table: pa.Table) -> TablePartition:
        """Return a partition with all rows of a table."""
        return TablePartition(pack(table))

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of exactly *schema*, as Spark requires."""
        table = unpack(self.arrow).select(schema.names)
        return (upgrade(batch, schema) for batch in table.to_batches())


def split(
    plan: ReadPlan, count: int, selector: str | None = None, now: int | None = None
) -> Sequence[IgnisPartition]:
    """Spread a plan over at most *count* partitions; the rows of a shard stay together."""
    shards: dict[tuple[str, int], list[ScanTask]] = defaultdict(list)
    for piece in plan.tasks:
        shards[piece.queue, piece.shard].append(piece)
    sizes = {shard: sum(piece.bytes for piece in pieces) for shard, pieces in shards.items()}
    return [
        IgnisPartition(
            replace(plan, tasks=tuple(piece for shard in shards_ for piece in shards[shard])),
            selector,
            now,
        )
        for shards_ in spread(sizes, count)
    ]


def condition_of(selector: str, schema: pa.Schema) -> Condition:
    """Return the condition that a selector, or the import path of a function, names."""
    # Not at the top: streams select when they fire, and need no SQL parser here.
    from queue_core.selector import FunctionSelector, Selector

    function = function_of(selector)
    if function is not None:
        return FunctionSelector.of(function, schema)
    return Selector.parse(selector, schema)


def function_of(selector: str | None) -> Any:
    """Return the function that a selector names by its import path; None if it is not a path."""
    if selector is None or not import_paths.is_path(selector):
        return None
    return import_paths.imported(selector, f"selector {selector!r}")
