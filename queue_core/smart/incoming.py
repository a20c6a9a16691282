"""What comes in: new messages that a policy or a de-duplication may leave out or change.

From a Python caller they are a table, and staged once it is known what is left of them. From a sink
they are staged already, and read back: what is left out is then simply not named by any slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from queue_core.model import (
    ROW_BITS,
    Part,
    QueueInfo,
    ReadPlan,
    ScanTask,
    SegmentRef,
    Staged,
)
from queue_core.policies.inputs import Flags, Overwritten
from queue_core.rows import Numbers, Rows
from queue_core.schema import serialize
from queue_core.segments.reader import read_table
from queue_core.segments.shard_hash import shards_of
from queue_core.segments.stager import Stager
from queue_core.segments.storage import Storage

#: Stages rows of a queue; tells also where each of them is, counted over all segments.
Stage = Callable[[pa.Table], tuple[list[Staged], Numbers]]


class Incoming(Protocol):
    """New messages, in order of loading."""

    def __len__(self) -> int: ...

    @property
    def shards(self) -> Numbers:
        """The shard of each; 0 where it does not matter."""

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some of their columns."""

    def stage(self, kept: Flags, overwritten: Overwritten) -> list[Staged]:
        """Those that are kept, some of them with other values, durable."""

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove what `stage` gave, as far as it was not there before."""

    def unused(self, staged: Sequence[Staged]) -> list[str]:
        """The files that were there before and are not among these."""


class IncomingRows:
    """The rows of a table."""

    def __init__(self, queue: QueueInfo, storage: Storage, rows: pa.Table, stage: Stage) -> None:
        self._queue = queue
        self._storage = storage
        self._rows = rows
        self._stage = stage
        #: Where each row that is kept is among those that were staged last.
        self.order: Numbers = np.empty(0, np.int64)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    @property
    def shards(self) -> Numbers:
        """By the key; without one, a policy has nothing to go by."""
        if self._queue.key is None:
            return np.zeros(len(self), np.int64)
        keys = self._rows.column(self._queue.key).combine_chunks()
        return shards_of(keys, self._queue.shards).astype(np.int64)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """As they are."""
        return self._rows.select(list(names))

    def stage(self, kept: Flags, overwritten: Overwritten) -> list[Staged]:
        """Written now."""
        rows = with_values(self._rows, overwritten)
        if not kept.all():
            rows = rows.take(pa.array(np.flatnonzero(kept)))
        staged, self.order = self._stage(rows) if rows.num_rows else ([], self.order[:0])
        return staged

    def discard(self, staged: Sequence[Staged]) -> None:
        """All of it."""
        remove(self._storage, staged)

    def unused(self, staged: Sequence[Staged]) -> list[str]:
        """There was nothing before."""
        return []


class IncomingSegments:
    """The rows of segments that the tasks of a sink have staged, each run with its shard."""

    def __init__(
        self,
        queue: QueueInfo,
        storage: Storage,
        staged: Sequence[Staged],
        schemas: dict[tuple[str, int], bytes],
    ) -> None:
        self._queue = queue
        self._storage = storage
        self._staged = staged
        self._schemas = schemas

    def __len__(self) -> int:
        return sum(segment.rows for segment in self._staged)

    @property
    def shards(self) -> Numbers:
        """As the runs say."""
        found, first = np.zeros(len(self), np.int64), 0
        for segment in self._staged:
            for run in segment.runs:
                its = slice(run.start, run.stop) if run.rows is None else run.rows.numbers()
                found[first : first + segment.rows][its] = run.shard or 0
            first += segment.rows
        return found

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Read back."""
        pieces = tuple(_piece(self._queue, at, segment) for at, segment in enumerate(self._staged))
        reading = ReadPlan(
            storage=self._storage.uri,
            schema=serialize(self._queue.schema),
            schemas=self._schemas,
            tasks=pieces,
        )
        return read_table(reading, list(names))

    def stage(self, kept: Flags, overwritten: Overwritten) -> list[Staged]:
        """The same segments, with only those rows; written anew where values are others."""
        if len(overwritten):
            rows = with_values(self.columns(self._queue.schema.names), overwritten)
            rows = rows.take(pa.array(np.flatnonzero(kept)))
            return list(Stager.of(self._storage, self._queue).write(rows))
        left, first = [], 0
        for segment in self._staged:
            mine = np.flatnonzero(kept[first : first + segment.rows])
            first += segment.rows
            if len(mine):
                left.append(segment.narrowed(Rows.of_numbers(mine)))
        return left

    def discard(self, staged: Sequence[Staged]) -> None:
        """Only what was written anew."""
        before = {segment.location for segment in self._staged}
        remove(self._storage, [segment for segment in staged if segment.location not in before])

    def unused(self, staged: Sequence[Staged]) -> list[str]:
        """What is not named after all."""
        used = {segment.location for segment in staged}
        return [s.location for s in self._staged if s.location and s.location not in used]


def with_values(rows: pa.Table, overwritten: Overwritten) -> pa.Table:
    """A table in which some rows have other values."""
    at = np.arange(rows.num_rows)
    at[overwritten.rows] = rows.num_rows + np.arange(len(overwritten))
    for name, values in overwritten.values.items():
        column = rows.column(name)
        both = pa.chunked_array([*column.chunks, values], column.type)
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), both.take(pa.array(at)))
    return rows


def remove(storage: Storage, staged: Sequence[Staged]) -> None:
    """Remove staged files, as far as that is possible."""
    for segment in staged:
        if segment.location is not None:
            storage.remove(segment.location)


def _piece(queue: QueueInfo, number: int, staged: Staged) -> ScanTask:
    firsts = np.cumsum([0, *(chunk.rows for chunk in staged.chunks)])[:-1].tolist()
    source = SegmentRef(
        segment_id=number,
        first_id=number << ROW_BITS,
        location=staged.location,
        data=staged.data,
        schema_version=staged.schema_version,
        chunks=tuple(zip(firsts, staged.chunks, strict=True)),
        loaded_at=0,
    )
    whole = Part(rows=Rows.span(0, staged.rows), attempts=0, fired_at=None)
    return ScanTask(queue=queue.name, shard=0, segment=source, parts=(whole,))
