"""Write the messages of several segments into one, under their ids and places. Needs no catalog.

Row numbers of the new segment are distances between places: two messages are as far apart in the
segment as in their shard. So every message keeps its place, even if messages in between are gone,
and the catalog maps only the ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from queue_core.segments.stager import Stager
from queue_core.segments.storage import Storage
from queue_core.values.column_roles import described
from queue_core.values.column_stats import stats_of
from queue_core.values.model import QueueInfo, Slice, Staged
from queue_core.values.rows import Numbers, Rows
from queue_core.values.schema import COMPACTED, METADATA


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Neighbouring slices that become one, in order of their positions."""

    pieces: tuple[Slice, ...]

    @property
    def position(self) -> int:
        """The place of the first row."""
        return self.pieces[0].position

    @property
    def span(self) -> int:
        """Number of places from the first row to the last."""
        return max(piece.end for piece in self.pieces) - self.position

    @property
    def bytes(self) -> int:
        """Their size in bytes."""
        return sum(piece.bytes for piece in self.pieces)

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(len(piece.rows) for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repacked:
    """A group in its new segment."""

    group: RewriteGroup
    #: The new slice. The id of its segment is not assigned yet.
    piece: Slice
    #: The ids of its messages, and their new rows.
    ids: Numbers
    rows: Numbers


def kept_columns(queue: QueueInfo) -> list[str]:
    """Return the columns that `repack` needs: the queue's, the message id and its loading time."""
    return [*queue.schema.names, *(name for name in COMPACTED.names if name in METADATA.names)]


def repack(
    storage: Storage, queue: QueueInfo, groups: Sequence[RewriteGroup], messages: pa.Table
) -> tuple[Staged, list[Repacked]]:
    """
    Write the messages of some groups as one durable segment, which no slice names yet.

    *messages* has their `kept_columns`, in order of the groups and of their places.
    """
    bases = np.cumsum([0, *(group.span for group in groups)])
    numbers = [_numbers(group) + base for group, base in zip(groups, bases[:-1], strict=True)]
    row = pa.array(np.concatenate(numbers), pa.uint32())
    staged = _written(storage, queue, messages.append_column(COMPACTED.field("_row"), row))
    # A chunk covers all row numbers up to the first row of the next one.
    ends = np.cumsum([chunk.rows for chunk in staged.chunks])[:-1]
    covered = np.diff([0, *row.to_numpy()[ends].tolist(), int(bases[-1])]).tolist()
    chunks = (c._replace(rows=rows) for c, rows in zip(staged.chunks, covered, strict=True))

    repacked, offset = [], 0
    for group, rows in zip(groups, numbers, strict=True):
        those = messages.slice(offset, len(rows))
        piece = replace(
            group.pieces[0],
            rows=Rows.of_numbers(rows),
            bytes=staged.bytes * len(rows) // staged.rows,
            loaded_at=min(piece.loaded_at for piece in group.pieces),
            moved_at=max(piece.moved_at for piece in group.pieces),
            stats=stats_of(those, described(queue.settings, queue.schema)),
        )
        ids = those.column("_message_id").to_numpy()
        repacked.append(Repacked(group=group, piece=piece, ids=ids, rows=rows))
        offset += len(rows)
    return replace(staged, rows=int(bases[-1]), chunks=tuple(chunks)), repacked


def _numbers(group: RewriteGroup) -> Numbers:
    """Return the distance of each message from the first place, in ascending order."""
    places = [piece.rows.numbers().astype(np.int64) + piece.place_of(0) for piece in group.pieces]
    # The places of slices can interleave; their messages are read in order of places.
    return np.sort(np.concatenate(places)) - group.position


def _written(storage: Storage, queue: QueueInfo, messages: pa.Table) -> Staged:
    # The messages stay in their shards, slices and turns.
    stager = Stager(storage, replace(queue, schema=messages.schema), as_is=True)
    (staged,) = stager.write(messages)
    return staged
