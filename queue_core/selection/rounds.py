"""Rounds: cut chosen messages into parts, each for one short transaction.

A transaction keeps others from the shards of its messages, and on SQLite from the whole catalog.
Its length depends on the number of slices more than on the number of messages. Brief rounds make a
firing wait for five milliseconds at most: the rounds of `Queue.choose` are brief, and within
`brief`, which the console uses, so are those of sweeps and shovels. Other sweeps and shovels hold
the store for some tens of milliseconds at a time, and finish several times sooner. A part names its
messages and the stretch of places where they are, so one look at an index finds them, however many
parts there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sqlalchemy import Connection

from queue_core.catalog.slices import id_map
from queue_core.catalog.slices.conditions import Stretch, eligible_of_segments
from queue_core.catalog.slices.slices import fetch
from queue_core.selection.quotas import by_horizon
from queue_core.selection.request import FireRequest
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, Slice
from queue_core.values.plan import Taken, having

#: The most slices of a brief part, and the most messages of any.
PART_SLICES = 12
PART_MESSAGES = 10_000
#: The most slices of a brief round that moves them whole, which costs far less for each.
WHOLE_SLICES = 16
#: The most slices of the rounds of a sweep or a shovel that need not be brief.
LONG_PART_SLICES = 64
LONG_WHOLE_SLICES = 256

_is_brief: ContextVar[bool] = ContextVar("ignis_brief_rounds", default=False)


@contextmanager
def brief() -> Iterator[None]:
    """Let the rounds of sweeps and shovels within be brief."""
    token = _is_brief.set(True)
    try:
        yield
    finally:
        _is_brief.reset(token)


def are_brief() -> bool:
    """Return whether the rounds of this context are to be brief."""
    return _is_brief.get()


def part_slices() -> int:
    """Return the most slices of a round that chooses among their messages."""
    return PART_SLICES if are_brief() else LONG_PART_SLICES


def whole_slices() -> int:
    """Return the most slices of a round that moves them whole."""
    return WHOLE_SLICES if are_brief() else LONG_WHOLE_SLICES


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPart:
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


def still_there(
    connection: Connection, request: FireRequest, ids: IdSet, lock: str | None = None
) -> list[Taken]:
    """Return the messages of *ids* in slices that are eligible for a request; *lock* as `fetch`."""
    located = id_map.located(connection, request.queue_ids, ids)
    where, given = eligible_of_segments(request, located.segments)
    found = fetch(connection, *where, given=given, lock=lock)
    return by_horizon(having(found, located), request)


def in_parts(
    connection: Connection, chosen: Sequence[Taken], most: int | None = None
) -> list[RoundPart]:
    """
    Return parts of messages of one queue, which are in order of magazines, shards and places.

    *most*: the most slices of a part; by default, brief parts.
    """
    if not chosen:
        return []
    ids = id_map.ids_of(connection, chosen)
    parts, at = [], 0
    for pieces in _cut(chosen, most or PART_SLICES):
        (first, _), (last, _) = pieces[0], pieces[-1]
        of_shard: dict[int, int] = {}
        for piece, messages in pieces:
            of_shard[piece.shard] = of_shard.get(piece.shard, 0) + messages
        end = at + sum(of_shard.values())
        attempts = {piece.attempts for piece, _ in pieces}
        parts.append(
            RoundPart(
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


def _cut(chosen: Sequence[Taken], most: int) -> Iterator[list[tuple[Slice, int]]]:
    """Yield the slices of each part, and how many messages of each it takes, in their order."""
    pieces: list[tuple[Slice, int]] = []
    messages = 0
    for piece, rows in chosen:
        left = len(rows)
        while left:
            is_full = len(pieces) == most or messages == PART_MESSAGES
            if pieces and (is_full or piece.magazine is not pieces[0][0].magazine):
                yield pieces
                pieces, messages = [], 0
            size = min(left, PART_MESSAGES - messages)
            pieces.append((piece, size))
            messages += size
            left -= size
    if pieces:
        yield pieces
