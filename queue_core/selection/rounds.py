"""Rounds: cut chosen messages into parts, each for one short transaction.

A transaction keeps others from the shards of its messages, and on SQLite from the whole catalog.
Its length depends on the number of slices more than on that of messages. The rounds of what a
person does let a firing wait for five milliseconds at most; those of side tasks may be longer. A
part names its messages, and the stretch of places where they are, so that finding them needs one
look at an index, however many parts there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import id_map
from queue_core.ids import IdSet, first_id
from queue_core.model import Magazine, Slice
from queue_core.plan import Taken, having
from queue_core.selection.by_segment import fetch_of_segments
from queue_core.selection.request import FireRequest, Stretch

#: The most slices and messages of a part.
PART_SLICES = 12
PART_MESSAGES = 10_000
#: The most slices of a round that moves them whole, which costs far less for each.
WHOLE_SLICES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some of the chosen messages, in slices that are side by side."""

    ids: IdSet
    magazine: Magazine
    #: How many messages each shard has.
    messages: Mapping[int, int]
    #: Where their slices begin; messages keep their places in a magazine.
    within: Stretch
    #: How often each message has failed; None: not all equally often.
    attempts: int | None

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards that have the messages."""
        return tuple(self.messages)


def still_there(connection: Connection, request: FireRequest, ids: IdSet) -> list[Taken]:
    """Return the messages of *ids* in slices that are eligible for a request."""
    located = id_map.located(connection, request.queue_ids, ids)
    return having(fetch_of_segments(connection, request, located.segments), located)


def in_parts(connection: Connection, chosen: Sequence[Taken]) -> list[Part]:
    """Return parts of messages of one queue, which are in order of magazines, shards and places."""
    if not chosen:
        return []
    rows = [rows.numbers().astype(np.int64) + first_id(piece.segment_id) for piece, rows in chosen]
    ids = id_map.logical(connection, np.concatenate(rows))
    parts, at = [], 0
    for pieces in _cut(chosen):
        (first, _), (last, _) = pieces[0], pieces[-1]
        of_shard: dict[int, int] = {}
        for piece, messages in pieces:
            of_shard[piece.shard] = of_shard.get(piece.shard, 0) + messages
        end = at + sum(of_shard.values())
        attempts = {piece.attempts for piece, _ in pieces}
        parts.append(
            Part(
                ids=IdSet.of(ids[at:end]),
                magazine=first.magazine,
                messages=of_shard,
                within=(
                    (first.shard, first.position),
                    (last.shard, last.place_of(last.rows.stop) - 1),
                ),
                attempts=attempts.pop() if len(attempts) == 1 else None,
            )
        )
        at = end
    return parts


def _cut(chosen: Sequence[Taken]) -> Iterator[list[tuple[Slice, int]]]:
    """Yield the slices of each part, and how many messages of each it takes, in their order."""
    pieces: list[tuple[Slice, int]] = []
    messages = 0
    for piece, rows in chosen:
        left = len(rows)
        while left:
            is_full = len(pieces) == PART_SLICES or messages == PART_MESSAGES
            if pieces and (is_full or piece.magazine is not pieces[0][0].magazine):
                yield pieces
                pieces, messages = [], 0
            size = min(left, PART_MESSAGES - messages)
            pieces.append((piece, size))
            messages += size
            left -= size
    if pieces:
        yield pieces
