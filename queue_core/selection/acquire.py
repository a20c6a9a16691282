"""Acquire: choose and lock the messages that a firing takes, evenly from all shards.

Changes nothing. Conditions on slices are SQL. Rows that match a `Selection` are `Candidates`. Then
the limits apply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, select

from queue_core.catalog import dialect, id_map, turns
from queue_core.catalog.slices import ShardKey, fetch
from queue_core.catalog.tables import slices
from queue_core.ids import IdSet
from queue_core.model import Slice
from queue_core.plan import Taken, share, take, within_bytes
from queue_core.selection.conditions import eligible_slices
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.shares import take_shares


def anything(connection: Connection, request: FireRequest) -> bool:
    """Return whether there may be messages to take."""
    query = select(slices.c.id).where(*eligible_slices(connection, request)).limit(1)
    return connection.scalar(query) is not None


def acquire(
    connection: Connection,
    request: FireRequest,
    lock: str | None,
    candidates: Candidates | None = None,
) -> list[Taken]:
    """
    Return the rows to take from each shard: as many as the limits allow, evenly.

    *lock* ``"wait"`` locks the turns of all shards, ``"skip"`` the free turns of shards with a
    backlog, and None no turn. With a lock, slices that others have locked are skipped. With
    *candidates*, only these are taken.
    """
    read = {None: turns.backlog, "wait": turns.lock, "skip": turns.lock_free}[lock]
    backlog = read(connection, request.queue_ids, request.magazine, request.shards)
    if candidates is not None:
        # The present rows of the candidates. Compaction needs the turns too, so they no longer
        # move.
        ids = id_map.located(connection, request.queue_ids, candidates.ids)
        unchanged = {
            key
            for key, shard in backlog.items()
            if candidates.fired.get(key, shard.fired) == shard.fired
        }
        chosen = _take_candidates(connection, request, unchanged, ids, lock)
    elif request.max_messages is None:
        chosen = take_shares(connection, request, dict.fromkeys(backlog), lock)
    else:
        # The number of fired messages rotates the start, so that each firing begins where the last
        # one ended. A locking firing sees only shards with a backlog; a peek counts the same
        # shards, so that it shows the same messages.
        turn = sum(shard.fired for shard in backlog.values() if shard.waiting)
        waiting = {key: shard.waiting for key, shard in backlog.items()}
        shares = share(waiting, request.max_messages, turn)
        chosen = take_shares(connection, request, shares, lock)
        if not any(chosen.values()):
            # The counters are only hints, and were wrong: take messages from any shard.
            every = dict.fromkeys(backlog, request.max_messages)
            chosen = _first(take_shares(connection, request, every, lock), request.max_messages)
    chosen = {key: taken for key, taken in chosen.items() if taken}
    if request.max_bytes is not None and chosen:
        ranked = candidates.ranked if candidates else ()
        chosen = within_bytes(chosen, request.max_bytes, ranked)
    return [taken for key in sorted(chosen) for taken in chosen[key]]


def _take_candidates(
    connection: Connection,
    request: FireRequest,
    shards: Collection[ShardKey],
    ids: IdSet,
    lock: str | None,
) -> dict[ShardKey, list[Taken]]:
    """Take the remaining candidates from shards whose turns are locked."""
    found = fetch(
        connection,
        *eligible_slices(connection, request),
        dialect.of(connection).one_of(slices.c.segment_id, ids.segments),
        lock="skip" if lock else None,
    )
    whole = {piece.id: piece for piece in found}
    chosen: dict[ShardKey, list[Taken]] = {}
    for key, pieces in by_shard(found).items():
        if key in shards:
            narrowed = [_narrowed(piece, ids) for piece in pieces]
            left = [piece for piece in narrowed if piece.rows]
            # The first candidate of a slice may come after those of later slices.
            chosen[key] = take(sorted(left, key=lambda piece: piece.position), None)
    if request.max_messages is not None:
        chosen = _first(chosen, request.max_messages)
    return {
        key: [(whole[piece.id], rows) for piece, rows in taken] for key, taken in chosen.items()
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
