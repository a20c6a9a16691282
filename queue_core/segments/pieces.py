"""Rows of a chunk with their metadata, and many such pieces joined to one batch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from queue_core.values.model import Part, ReadPlan, ScanTask
from queue_core.values.rows import RowNumbers
from queue_core.values.schema import COMPACTED, METADATA, TIMESTAMP, deserialize, output_schema


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of the batches, worked out once: a plan can have many small chunks."""

    #: All columns of the queue, as they are now.
    queue: pa.Schema
    #: Those of them that are read.
    own: pa.Schema
    #: The columns that are returned.
    output: pa.Schema
    names: list[str]
    #: The names of the returned columns that are the same in all rows of a part.
    repeated: list[str]


def layout_of(plan: ReadPlan, columns: Sequence[str] | None) -> Layout:
    """Return the columns of a plan's batches; *columns* as for `read`."""
    return _layout_of(plan.schema, None if columns is None else tuple(columns))


# A consumer reads many small plans, of the same columns.
@lru_cache(maxsize=64)
def _layout_of(schema: bytes, columns: tuple[str, ...] | None) -> Layout:
    queue = deserialize(schema)
    output = output_schema(queue, columns)
    names: list[str] = output.names
    own = pa.schema([field for field in queue if field.name in names])
    return Layout(queue, own, output, names, [n for n in names if n in _OF_TASKS])


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one chunk, and what their metadata are made of."""

    task: ScanTask
    numbers: RowNumbers
    #: The queue's columns that are read.
    own: pa.RecordBatch
    #: Metadata that a compacted segment has kept.
    kept: dict[str, pa.Array]
    #: Returns the metadata that all rows of the task share, for as many rows at least.
    repeated: Callable[[], dict[str, pa.Array]]


def joined(pieces: list[Piece], layout: Layout) -> pa.RecordBatch:
    """Return the rows of some pieces with their metadata."""
    if len(pieces) == 1:
        return _assemble(pieces[0], layout)
    counts = [len(piece.numbers) for piece in pieces]
    own: dict[str, pa.Array] = {}
    if len(layout.own):
        values_of = pa.concat_batches([piece.own for piece in pieces])
        own = dict(zip(layout.own.names, values_of.columns, strict=True))
    columns = []
    for name in layout.names:
        if name in own:
            columns.append(own[name])
        elif name not in _OF_TASKS or not all(_is_shared(name, piece) for piece in pieces):
            columns.append(pa.concat_arrays([_metadata(name, piece) for piece in pieces]))
        else:
            # To make one array takes far less time than to make one for each piece.
            values = [_OF_TASKS[name](piece.task) for piece in pieces]
            columns.append(_repeat(values, counts, METADATA.field(name).type))
    return pa.RecordBatch.from_arrays(columns, schema=layout.output)


def _repeat(values: list[Any], counts: list[int], kind: pa.DataType) -> pa.Array:
    """Return each value as often as its count says."""
    first = values[0]
    if all(value == first for value in values):
        return pa.repeat(pa.scalar(first, kind), sum(counts))
    if pa.types.is_string(kind) or None in values:
        each = zip(values, counts, strict=True)
        return pa.concat_arrays([pa.repeat(pa.scalar(value, kind), n) for value, n in each])
    numbers = np.repeat(np.array(values, np.int64), counts)
    return pa.array(numbers).cast(kind)


def _is_shared(name: str, piece: Piece) -> bool:
    """Return whether all rows of a piece have the same value."""
    return name not in piece.kept and (len(piece.task.parts) == 1 or name not in _OF_PARTS)


def repeated_in(task: ScanTask, layout: Layout, count: int) -> dict[str, pa.Array]:
    """Return the metadata that all rows of a task share, *count* times."""
    return {
        name: pa.repeat(pa.scalar(_OF_TASKS[name](task), METADATA.field(name).type), count)
        for name in layout.repeated
        if len(task.parts) == 1 or name not in _OF_PARTS
    }


def _assemble(piece: Piece, layout: Layout) -> pa.RecordBatch:
    columns = [
        _metadata(name, piece) if name in _METADATA else piece.own.column(name)
        for name in layout.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=layout.output)


def _metadata(name: str, piece: Piece) -> pa.Array:
    if name in piece.kept:
        return piece.kept[name]
    if name in _OF_TASKS and _is_shared(name, piece):
        return piece.repeated()[name].slice(0, len(piece.numbers))
    return _OF_ROWS[name](piece.task, piece.numbers)


def without_kept(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """Split a compacted segment's batch into the queue's columns and the kept `METADATA`."""
    own = batch.num_columns - len(COMPACTED)
    kept = dict(zip(COMPACTED.names, batch.columns[own:], strict=True))
    if not own:
        # All requested columns were added later; only the number of rows counts.
        return pa.record_batch([pa.nulls(batch.num_rows)], [""]), kept
    fields = [batch.schema.field(index) for index in range(own)]
    queues = pa.RecordBatch.from_arrays(batch.columns[:own], schema=pa.schema(fields))
    return queues, {name: kept[name] for name in kept if name in METADATA.names}


def _ids(task: ScanTask, numbers: RowNumbers) -> pa.Array:
    return pa.array(numbers.astype(np.int64) + task.segment.first_id)


def _attempts(task: ScanTask, numbers: RowNumbers) -> pa.Array:
    values = np.zeros(len(numbers), dtype=np.int32)
    for part, indices in _indices(task.parts, numbers):
        values[indices] = part.attempts
    return pa.array(values)


def _fired_at(task: ScanTask, numbers: RowNumbers) -> pa.Array:
    values = np.zeros(len(numbers), dtype=np.int64)
    unknown = np.ones(len(numbers), dtype=np.bool_)
    for part, indices in _indices(task.parts, numbers):
        if part.fired_at is not None:
            values[indices] = part.fired_at
            unknown[indices] = False
    return pa.array(values, mask=unknown).cast(TIMESTAMP)


def _indices(
    parts: tuple[Part, ...], numbers: RowNumbers
) -> Iterator[tuple[Part, np.ndarray[tuple[int], np.dtype[np.intp]]]]:
    """Yield each part with the indices of its rows among *numbers*."""
    for part in parts:
        rows = part.rows.between(int(numbers[0]), int(numbers[-1]) + 1)
        yield part, np.searchsorted(numbers, rows.numbers())


#: Metadata that differs between the parts of a task.
_OF_PARTS = {"_attempt": _attempts, "_fired_at": _fired_at}
#: Metadata that may differ between the rows of a task.
_OF_ROWS = {"_message_id": _ids, **_OF_PARTS}
#: Metadata that is one value for all rows of a task, or of a part.
_OF_TASKS: dict[str, Callable[[ScanTask], Any]] = {
    "_queue": lambda task: task.queue,
    "_shard": lambda task: task.shard,
    "_attempt": lambda task: task.parts[0].attempts,
    "_loaded_at": lambda task: task.segment.loaded_at,
    "_fired_at": lambda task: task.parts[0].fired_at,
}
_METADATA = frozenset(METADATA.names)
