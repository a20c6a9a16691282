"""Rounds: cut chosen messages into parts, each for one short transaction.

A transaction keeps others from the shards of its messages, and on SQLite from the whole catalog.
Its length depends on the number of slices more than on that of messages. The rounds of what a
person does let a firing wait for five milliseconds at most; those of side tasks may be longer. A
part names its messages, and the stretch of places where they are, so that finding them needs one
look at an index, however many parts there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import dialect, id_map
from queue_core.catalog.slices import fetch
from queue_core.catalog.tables import slices
from queue_core.ids import IdSet, first_id
from queue_core.model import Magazine, Slice
from queue_core.plan import Taken, having
from queue_core.selection.conditions import eligible_slices
from queue_core.selection.request import FireRequest, Stretch

#: The most slices and messages of a part.
PART_SLICES = 16
PART_MESSAGES = 10_000
#: The most slices of a round that moves them whole, which costs far less for each.
WHOLE_SLICES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some of the chosen messages, in slices that are side by side."""

    ids: IdSet
    magazine: Magazine
    shards: tuple[int, ...]
    #: Where their slices begin; messages keep their places in a magazine.
    within: Stretch


def still_there(connection: Connection, request: FireRequest, ids: IdSet) -> list[Taken]:
    """Return the messages of *ids* in slices that are eligible for a request."""
    located = id_map.located(connection, request.queue_ids, ids)
    here = dialect.of(connection).one_of(slices.c.segment_id, located.segments)
    found = fetch(connection, here, *eligible_slices(connection, request, by_segment=True))
    return having(found, located)


def in_parts(connection: Connection, chosen: Sequence[Taken]) -> list[Part]:
    """Return parts of messages of one queue, which are in order of magazines, shards and places."""
    if not chosen:
        return []
    rows = [rows.numbers().astype(np.int64) + first_id(piece.segment_id) for piece, rows in chosen]
    ids = id_map.logical(connection, np.concatenate(rows))
    parts, at = [], 0
    for pieces, messages in _cut(chosen):
        first, last = pieces[0], pieces[-1]
        parts.append(
            Part(
                ids=IdSet.of(ids[at : at + messages]),
                magazine=first.magazine,
                shards=tuple(sorted({piece.shard for piece in pieces})),
                within=(
                    (first.shard, first.position),
                    (last.shard, last.place_of(last.rows.stop) - 1),
                ),
            )
        )
        at += messages
    return parts


def _cut(chosen: Sequence[Taken]) -> Iterator[tuple[list[Slice], int]]:
    """Yield the slices of each part, and how many messages it takes from where the last ended."""
    pieces: list[Slice] = []
    messages = 0
    for piece, rows in chosen:
        left = len(rows)
        while left:
            is_full = len(pieces) == PART_SLICES or messages == PART_MESSAGES
            if pieces and (is_full or piece.magazine is not pieces[0].magazine):
                yield pieces, messages
                pieces, messages = [], 0
            size = min(left, PART_MESSAGES - messages)
            pieces.append(piece)
            messages += size
            left -= size
    if pieces:
        yield pieces, messages
