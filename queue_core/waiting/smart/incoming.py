"""Incoming messages, which a policy or a de-duplication may leave out or change.

A Python caller brings a table, which is staged after the decision which rows are kept. A sink
brings segments that are already staged, possibly without some of their rows. The others are read
back, and slices do not name rows that are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from queue_core.catalog.records.publications import check_there
from queue_core.policies.inputs import Flags, Overwritten
from queue_core.segments.reader import read_table
from queue_core.segments.shard_hash import shards_of
from queue_core.segments.stager import Stager
from queue_core.segments.storage import Storage
from queue_core.values.model import (
    ROW_BITS,
    Part,
    QueueInfo,
    ReadPlan,
    ScanTask,
    SegmentRef,
    Staged,
)
from queue_core.values.rows import Numbers, Rows
from queue_core.values.schema import serialize

#: Stages rows of a queue; also returns the number of each row, counted over all segments.
Stage = Callable[[pa.Table], tuple[list[Staged], Numbers]]


class IncomingRows:
    """The rows of a table."""

    def __init__(self, queue: QueueInfo, rows: pa.Table, stage: Stage) -> None:
        self._queue = queue
        self._rows = rows
        self._stage = stage
        #: The number of each kept row among the rows that were staged last.
        self.order: Numbers = np.empty(0, np.int64)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    @property
    def shards(self) -> Numbers:
        """The shards by the key; without a key, a queue with a policy has one shard."""
        if self._queue.key is None:
            return np.zeros(len(self), np.int64)
        keys = self._rows.column(self._queue.key).combine_chunks()
        return shards_of(keys, self._queue.shards).astype(np.int64)

    @property
    def brought(self) -> Sequence[Staged]:
        """The segments that existed before `stage`: none."""
        return ()

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return columns of the table."""
        return self._rows.select(list(names))

    def stage(self, kept: Flags, overwritten: Overwritten) -> list[Staged]:
        """Write the kept rows, some of them with other values, to durable segments."""
        rows = overwritten.applied_to(self._rows)
        if not kept.all():
            rows = rows.take(pa.array(np.flatnonzero(kept)))
        staged, self.order = self._stage(rows) if rows.num_rows else ([], self.order[:0])
        return staged


class IncomingSegments:
    """The rows that the runs of staged segments name; each run has its shard."""

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
        of_rows = [_shards(segment) for segment in staged]
        #: The rows of each segment: those of lost messages may have been left out before.
        self._rows = [Rows.of_numbers(np.flatnonzero(shards >= 0)) for shards in of_rows]
        #: The shards of the runs.
        self.shards: Numbers = np.concatenate(
            [np.empty(0, np.int64), *(shards[shards >= 0] for shards in of_rows)]
        )

    def __len__(self) -> int:
        return len(self.shards)

    @property
    def brought(self) -> Sequence[Staged]:
        """The segments that existed before `stage`: those of the sink."""
        return self._staged

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Read columns back from the segments."""
        plan = ReadPlan(
            storage=self._storage.uri,
            schema=serialize(self._queue.schema),
            schemas=self._schemas,
            tasks=tuple(
                _scan_task(self._queue, number, segment, rows)
                for number, (segment, rows) in enumerate(zip(self._staged, self._rows, strict=True))
            ),
        )
        # It is no damage if vacuum has removed one that nobody published in time.
        check_there(self._storage, [each.location for each in self._staged if each.location])
        return read_table(plan, list(names))

    def stage(self, kept: Flags, overwritten: Overwritten) -> list[Staged]:
        """Return the segments with only the kept rows; rewrite them if values have changed."""
        if len(overwritten):
            rows = overwritten.applied_to(self.columns(self._queue.schema.names))
            rows = rows.take(pa.array(np.flatnonzero(kept)))
            staged = Stager(self._storage, self._queue).write(rows)
            # Without a key, a queue with a policy has one shard.
            return [segment.in_shard(0) for segment in staged]
        narrowed, first = [], 0
        for segment, named in zip(self._staged, self._rows, strict=True):
            rows = named.numbers()[kept[first : first + len(named)]]
            first += len(named)
            if len(rows):
                narrowed.append(segment.narrowed(Rows.of_numbers(rows)))
        return narrowed


#: New messages, in order of loading.
Incoming: TypeAlias = IncomingRows | IncomingSegments


def _shards(staged: Staged) -> Numbers:
    """Return the shard of each row of a segment; -1 if no run names the row."""
    shards = np.full(staged.rows, -1, np.int64)
    for run in staged.runs:
        rows = slice(run.start, run.stop) if run.rows is None else run.rows.numbers()
        shards[rows] = run.shard or 0
    return shards


def _scan_task(queue: QueueInfo, number: int, staged: Staged, rows: Rows) -> ScanTask:
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
    part = Part(rows=rows, attempts=0, fired_at=None)
    return ScanTask(queue=queue.name, shard=0, segment=source, parts=(part,))
