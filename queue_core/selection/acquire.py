"""Acquire: choose and lock the messages that a firing takes, evenly from all shards.

Changes nothing. Conditions on slices are SQL. Rows that match a `Selection` are `Candidates`. Then
the limits apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, select, tuple_

from queue_core.catalog import bunches, dialect, id_map, turns
from queue_core.catalog.bunches import Bunch
from queue_core.catalog.slices import ShardKey
from queue_core.catalog.tables import slices
from queue_core.catalog.turns import Backlog
from queue_core.ids import IdSet
from queue_core.model import Slice
from queue_core.plan import Taken, share, take, within_bytes
from queue_core.selection.by_segment import fetch_of_segments
from queue_core.selection.conditions import eligible_slices
from queue_core.selection.request import START, Candidates, FireRequest, Position
from queue_core.selection.shares import take_shares
from queue_core.selection.turn_choice import Lock, choose_turns

#: The most slices that one transaction of a long task takes, so that others wait for some ten
#: milliseconds at most.
ROUND_SLICES = 1000


def anything(connection: Connection, request: FireRequest) -> bool:
    """Return whether there may be messages to take."""
    query = select(slices.c.id).where(*eligible_slices(connection, request)).limit(1)
    return connection.scalar(query) is not None


def acquire(
    connection: Connection,
    request: FireRequest,
    lock: Lock,
    candidates: Candidates | None = None,
) -> list[Taken]:
    """
    Return the rows to take from each shard: as many as the limits allow, evenly.

    *lock* says which turns to lock. With ``"wait"``, these are the turns of all shards; otherwise,
    of shards with a backlog. With a lock, slices that others have locked are skipped. With
    *candidates*, only these are taken.
    """
    if request.fair and candidates is None and not request.takes_all:
        # Not at the top: few queues are fair.
        from queue_core.selection.by_rank import take_fairly

        return take_fairly(connection, request, lock)
    if candidates is not None:
        chosen = _take_candidates(connection, request, candidates, lock)
    elif request.max_messages is None:
        every = dict.fromkeys(_backlog(connection, request, lock))
        chosen = take_shares(connection, request, every, lock)
    else:
        chosen = _take_limited(connection, request, request.max_messages, lock)
    chosen = {key: taken for key, taken in chosen.items() if taken}
    if request.max_bytes is not None and chosen:
        ranked = candidates.ranked if candidates else ()
        chosen = within_bytes(chosen, request.max_bytes, ranked)
    return [taken for key in sorted(chosen) for taken in chosen[key]]


def take_bunch(
    connection: Connection, request: FireRequest, begin: Position, count: int
) -> tuple[Bunch, Position | None]:
    """
    Return the next *count* slices for a request without limits, and where those after them begin.

    From *begin* on, in order of shards and places. Locks the turns of all shards. Slices whose rows
    interleave are taken together, and so may be more.
    """
    turns.lock(connection, request.queue_ids, request.magazine, request.shards)
    where = eligible_slices(connection, request)
    if begin > START:
        where.append(tuple_(slices.c.shard, slices.c.position) >= begin)
    whole, bunch = 0, bunches.read(connection, *where, limit=count + 1)
    while len(bunch) and not (whole := bunch.whole(count)):
        count *= 8
        bunch = bunches.read(connection, *where, limit=count + 1)
    if whole == len(bunch):
        return bunch, None
    return bunch[:whole], (int(bunch.shard[whole]), int(bunch.position[whole]))


def _backlog(connection: Connection, request: FireRequest, lock: Lock) -> dict[ShardKey, Backlog]:
    """Return the backlog of all shards, or of those whose turns could be locked."""
    read = turns.lock_free if lock == "skip" else turns.lock if lock else turns.backlog
    return read(connection, request.queue_ids, request.magazine, request.shards)


def _take_limited(
    connection: Connection, request: FireRequest, limit: int, lock: Lock
) -> dict[ShardKey, list[Taken]]:
    """Take a number of messages, evenly from the shards whose turn it is."""
    backlog = choose_turns(connection, request, lock, limit)
    chosen = _take_evenly(connection, request, backlog, limit, lock)
    if any(chosen.values()):
        return chosen
    if backlog and lock in ("skip", None):
        # Their messages may not be fired, or not yet.
        others = choose_turns(connection, request, lock, limit, without=backlog)
        chosen = _take_evenly(connection, request, others, limit, lock)
    if not any(chosen.values()) and lock in ("wait", None):
        # The counters are only hints, and were wrong: take messages from any shard.
        every = backlog if lock else _backlog(connection, request, lock)
        shares = dict.fromkeys(every, limit)
        chosen = _first(take_shares(connection, request, shares, lock), limit)
    return chosen


def _take_evenly(
    connection: Connection,
    request: FireRequest,
    backlog: Mapping[ShardKey, Backlog],
    limit: int,
    lock: Lock,
) -> dict[ShardKey, list[Taken]]:
    waiting = {key: shard.waiting for key, shard in backlog.items()}
    turn = sum(shard.fired for shard in backlog.values() if shard.waiting)
    return take_shares(connection, request, share(waiting, limit, turn), lock)


def _take_candidates(
    connection: Connection, request: FireRequest, candidates: Candidates, lock: Lock
) -> dict[ShardKey, list[Taken]]:
    """Take the remaining candidates from shards whose turns are locked."""
    shards = _unfired(connection, request, candidates, lock)
    # The present rows of the candidates. Compaction needs the turns too, so they no longer move.
    ids = id_map.located(connection, request.queue_ids, candidates.ids)
    found = fetch_of_segments(connection, request, ids.segments, "skip" if lock else None)
    whole = {piece.id: piece for piece in found}
    chosen: dict[ShardKey, list[Taken]] = {}
    for key, pieces in by_shard(found).items():
        if shards is None or key in shards:
            narrowed = [_narrowed(piece, ids) for piece in pieces]
            left = [piece for piece in narrowed if piece.rows]
            # The first candidate of a slice may come after those of later slices.
            chosen[key] = take(sorted(left, key=lambda piece: piece.position), None)
    if request.max_messages is not None:
        chosen = _first(chosen, request.max_messages)
    return {
        key: [(whole[piece.id], rows) for piece, rows in taken] for key, taken in chosen.items()
    }


def _unfired(
    connection: Connection, request: FireRequest, candidates: Candidates, lock: Lock
) -> set[ShardKey] | None:
    """Lock turns; return the shards that nobody fired from since the search (None: all)."""
    locks = lock is not None and dialect.of(connection).writes_in_parallel
    if not locks and not candidates.fired:
        return None
    return {
        key
        for key, shard in _backlog(connection, request, lock).items()
        if candidates.fired.get(key, shard.fired) == shard.fired
    }


def _narrowed(piece: Slice, ids: IdSet) -> Slice:
    rows = piece.rows & ids.rows(piece.segment_id)
    return replace(piece, rows=rows, position=piece.place_of(rows.start))


def _first(chosen: Mapping[ShardKey, list[Taken]], limit: int) -> dict[ShardKey, list[Taken]]:
    """Cut the rows that were chosen from each shard to a limit over all shards."""
    sizes = {key: sum(len(rows) for _, rows in taken) for key, taken in chosen.items()}
    shares = share(sizes, limit)
    return {key: take([piece for piece, _ in chosen[key]], n) for key, n in shares.items()}


def by_shard(pieces: Sequence[Slice]) -> dict[ShardKey, list[Slice]]:
    """Group slices by shard, in their order."""
    found: dict[ShardKey, list[Slice]] = {}
    for piece in pieces:
        found.setdefault((piece.queue_id, int(piece.magazine), piece.shard), []).append(piece)
    return found
