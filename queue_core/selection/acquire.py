"""Which messages a firing takes: eligible ones, in order, evenly from all shards.

Reads and locks; changes nothing. One mechanism for every rule: conditions on slices that SQL can
see, a `Selection` of rows where columns have to be looked at, and then limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, select

from queue_core.catalog import dialect, id_map, turns
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import ShardKey, fetch
from queue_core.catalog.tables import slices
from queue_core.ids import IdSet
from queue_core.model import Magazine, Slice
from queue_core.plan import Taken, before, share, take, within_bytes
from queue_core.selection.conditions import eligible_slices
from queue_core.selection.request import Candidates, FireRequest, Horizon

#: Slices that one firing takes at most: what a driver plans and hands out must stay small.
MAX_SLICES = 1 << 16


def horizon(catalog: Catalog, queue_ids: Sequence[int], magazine: Magazine) -> Horizon:
    """What is loaded now."""
    with catalog.read() as connection:
        pointers = turns.load_pointers(connection, queue_ids, magazine)
        return Horizon(pointers=pointers, at=dialect.read_clock(connection))


def anything(connection: Connection, wanted: FireRequest) -> bool:
    """Whether there may be something to take."""
    query = select(slices.c.id).where(*eligible_slices(connection, wanted)).limit(1)
    return connection.scalar(query) is not None


def acquire(
    connection: Connection, wanted: FireRequest, lock: str | None, picked: Candidates | None = None
) -> list[Taken]:
    """
    What to take from each shard: as much of each as the limit allows, evenly.

    *lock* takes the turns of shards: ``"wait"`` those of all of them, ``"skip"`` the free ones of
    those with a backlog, None no turn. Slices that others hold are passed over in both cases.
    *picked* is what `find_candidates` has found: then only of these.
    """
    read = {None: turns.backlog, "wait": turns.lock, "skip": turns.lock_free}[lock]
    there = read(connection, wanted.queue_ids, wanted.magazine, wanted.shards)
    if picked is not None:
        # Where they are now: with the turns taken, nothing moves any more.
        ids = id_map.located(connection, wanted.queue_ids, picked.ids)
        unchanged = {p for p in there if picked.fired.get(p, there[p].fired) == there[p].fired}
        chosen = _take_picked(connection, wanted, unchanged, ids, lock)
    elif wanted.max_messages is None:
        chosen = _take_shares(connection, wanted, dict.fromkeys(there), lock)
    else:
        # By what was fired before, each turn begins where the last one ended. Of shards in which
        # something waits, as it is those alone whose turns are taken: so a peek shows the same.
        turn = sum(shard.fired for shard in there.values() if shard.waiting)
        hints = {place: shard.waiting for place, shard in there.items()}
        shares = share(hints, wanted.max_messages, turn)
        chosen = _take_shares(connection, wanted, shares, lock)
        if not any(chosen.values()):
            # The hints were wrong: take what there is.
            every = dict.fromkeys(there, wanted.max_messages)
            chosen = _first(_take_shares(connection, wanted, every, lock), wanted.max_messages)
    chosen = {place: taken for place, taken in chosen.items() if taken}
    if wanted.max_bytes is not None and chosen:
        chosen = within_bytes(chosen, wanted.max_bytes, picked.ranked if picked else ())
    return [taken for place in sorted(chosen) for taken in chosen[place]]


def _take_shares(
    connection: Connection,
    wanted: FireRequest,
    shares: Mapping[ShardKey, int | None],
    lock: str | None,
) -> dict[ShardKey, list[Taken]]:
    most = max(MAX_SLICES // max(len(shares), 1), 1)
    chosen = {}
    for place, count in shares.items():
        if count == 0:
            continue
        number = most if count is None else min(count, most)
        found = fetch(
            connection,
            *eligible_slices(connection, wanted),
            slices.c.queue_id == place[0],
            slices.c.shard == place[2],
            limit=number + 1,
            lock="skip" if lock else None,
        )
        taken = by_horizon(take(found[:number], count), wanted, place)
        # What is left out may stand between the rows of what is not.
        chosen[place] = before(taken, found[number].position) if found[number:] else taken
    return chosen


def _take_picked(
    connection: Connection,
    wanted: FireRequest,
    shards: Collection[ShardKey],
    picked: IdSet,
    lock: str | None,
) -> dict[ShardKey, list[Taken]]:
    """What is still there of what was picked, in some shards whose turn was taken."""
    found = fetch(
        connection,
        *eligible_slices(connection, wanted),
        dialect.one_of(connection, slices.c.segment_id, picked.segments),
        lock="skip" if lock else None,
    )
    whole = {piece.id: piece for piece in found}
    chosen: dict[ShardKey, list[Taken]] = {}
    for place, pieces in by_place(found).items():
        if place in shards:
            narrowed = [_narrowed(piece, picked) for piece in pieces]
            left = [piece for piece in narrowed if piece.rows]
            # What is left of a slice may stand behind what is left of later ones.
            chosen[place] = take(sorted(left, key=lambda piece: piece.position), None)
    if wanted.max_messages is not None:
        chosen = _first(chosen, wanted.max_messages)
    return {
        place: [(whole[piece.id], rows) for piece, rows in taken] for place, taken in chosen.items()
    }


def _narrowed(piece: Slice, picked: IdSet) -> Slice:
    rows = piece.rows & picked.rows(piece.segment_id)
    return replace(piece, rows=rows, position=piece.place_of(rows.start))


def _first(chosen: Mapping[ShardKey, list[Taken]], limit: int) -> dict[ShardKey, list[Taken]]:
    """Within a limit over all shards, what was taken from each without looking at the others."""
    sizes = {place: sum(len(rows) for _, rows in taken) for place, taken in chosen.items()}
    shares = share(sizes, limit)
    return {place: take([s for s, _ in chosen[place]], count) for place, count in shares.items()}


def by_place(pieces: Sequence[Slice]) -> dict[ShardKey, list[Slice]]:
    """Slices of each shard, in their order."""
    found: dict[ShardKey, list[Slice]] = {}
    for piece in pieces:
        found.setdefault((piece.queue_id, int(piece.magazine), piece.shard), []).append(piece)
    return found


def by_horizon(taken: Sequence[Taken], wanted: FireRequest, place: ShardKey) -> list[Taken]:
    """What was loaded by the horizon; a compacted slice may lie on both sides of it."""
    if wanted.horizon is None:
        return list(taken)
    return before(taken, wanted.horizon.pointers.get(place, 0))
