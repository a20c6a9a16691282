"""Which messages a firing takes: eligible ones, in order, evenly from all shards.

Reads and locks; changes nothing. One mechanism for every rule: conditions on slices that SQL can
see, a `Selection` of rows where columns have to be looked at, and then limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, select

from queue_core.catalog import Catalog, compactions, dialect
from queue_core.catalog.slices import Place, fetch
from queue_core.catalog.tables import counters, places, shards, slices, turns
from queue_core.ids import IdSet
from queue_core.model import Magazine, Slice, State
from queue_core.plan import Taken, before, share, take, within_bytes
from queue_core.verbs.rules import Rules
from queue_core.verbs.selection import Selection

#: Slices that one firing takes at most: what a driver plans and hands out must stay small.
MAX_SLICES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a firing may take."""

    #: The queues, of one schema.
    queue_ids: tuple[int, ...]
    magazine: Magazine = Magazine.MAIN
    max_messages: int | None = None
    #: A firing takes at least one message, also if that one is larger.
    max_bytes: int | None = None
    #: Only places before these, and only what was not fired since; from `horizon`.
    horizon: Horizon | None = None
    #: Only rows that a selector lets through, and first what an order puts first.
    selection: Selection | None = None
    #: Only slices that meet all of these: what the settings of the queues say.
    rules: Rules = ()
    #: Only of these shards; None: of all.
    shards: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """A moment: what was loaded by then, so that a query can end when it has handled that."""

    #: The load pointer of each shard.
    pointers: Mapping[Place, int]
    at: int


@dataclass(frozen=True, slots=True)
class Picked:
    """The messages that a selection lets through, by a look outside of the transaction."""

    ids: IdSet
    #: How many messages had been fired from shards until then, where that must not change: in a
    #: queue with groups another one may be the head by now.
    fired: Mapping[Place, int]
    #: The shards of which what was picked keeps the limit of bytes already, by an order.
    ranked: frozenset[Place]


def horizon(catalog: Catalog, queue_ids: Sequence[int], magazine: Magazine) -> Horizon:
    """What is loaded now."""
    with catalog.read() as connection:
        rows = connection.execute(
            select(shards).where(
                dialect.one_of(connection, shards.c.queue_id, queue_ids),
                shards.c.magazine == int(magazine),
            )
        )
        pointers = {(row.queue_id, row.magazine, row.shard): row.load_pointer for row in rows}
        at = connection.scalar(select(dialect.now()))
    return Horizon(pointers=pointers, at=int(at or 0))


def waiting(connection: Connection, wanted: Wanted, lock: str | None = None) -> dict[Place, int]:
    """
    How many messages wait in each shard, by its counters; a hint, while others are at work.

    *lock* takes the turns as well: ``"wait"`` those of all shards, ``"skip"`` those of shards where
    something waits and nobody else fires.
    """
    return counted(connection, wanted, lock)[0]


def counted(
    connection: Connection, wanted: Wanted, lock: str | None = None
) -> tuple[dict[Place, int], dict[Place, int]]:
    """The same, and how many messages were ever fired from each shard."""
    left = shards.c.loaded + counters.c.reloaded - turns.c.fired - counters.c.damaged
    query = (
        select(turns.c.queue_id, turns.c.magazine, turns.c.shard, turns.c.fired, left.label("left"))
        .select_from(places)
        .where(
            dialect.one_of(connection, turns.c.queue_id, wanted.queue_ids),
            turns.c.magazine == int(wanted.magazine),
        )
        .order_by(turns.c.queue_id, turns.c.shard)
    )
    if wanted.shards is not None:
        query = query.where(dialect.one_of(connection, turns.c.shard, wanted.shards))
    if lock == "skip":
        query = dialect.skip_locked(connection, query.where(left > 0), turns)
    elif lock == "wait":
        query = dialect.locked(connection, query, turns)
    rows = connection.execute(query).all()
    shard = [(row.queue_id, row.magazine, row.shard) for row in rows]
    hints = {place: max(row.left, 0) for place, row in zip(shard, rows, strict=True)}
    return hints, {place: row.fired for place, row in zip(shard, rows, strict=True)}


def anything(connection: Connection, wanted: Wanted) -> bool:
    """Whether there may be something to take."""
    query = select(slices.c.id).where(*eligible(connection, wanted)).limit(1)
    return connection.scalar(query) is not None


def eligible(connection: Connection, wanted: Wanted) -> list[ColumnElement[bool]]:
    """The conditions on slices of which something may be taken."""
    conditions = [
        dialect.one_of(connection, slices.c.queue_id, wanted.queue_ids)
        if len(wanted.queue_ids) > 1
        else slices.c.queue_id == wanted.queue_ids[0],
        slices.c.magazine == int(wanted.magazine),
        slices.c.state == int(State.LOADED),
        *wanted.rules,
    ]
    if wanted.shards is not None:
        conditions.append(dialect.one_of(connection, slices.c.shard, wanted.shards))
    if wanted.horizon is not None:
        at = wanted.horizon.at
        conditions.append(slices.c.fired_at.is_(None) | (slices.c.fired_at < at))
    return conditions


def choose(
    connection: Connection, wanted: Wanted, lock: str | None, picked: Picked | None = None
) -> list[Taken]:
    """
    What to take from each shard: as much of each as the limit allows, evenly.

    *lock* is that of `waiting`; slices that others hold are passed over in both cases. *picked* is
    what `pick` has found: then only of these.
    """
    hints, fired = counted(connection, wanted, lock)
    if picked is not None:
        # Where they are now: with the turns taken, nothing moves any more.
        ids = compactions.located(connection, wanted.queue_ids, picked.ids)
        unchanged = {p for p in hints if picked.fired.get(p, fired[p]) == fired[p]}
        chosen = _take_picked(connection, wanted, unchanged, ids, lock)
    elif wanted.max_messages is None:
        chosen = _take_shares(connection, wanted, dict.fromkeys(hints), lock)
    else:
        # By what was fired before, each turn begins where the last one ended. Of shards in which
        # something waits, as it is those alone whose turns are taken: so a peek shows the same.
        turn = sum(count for place, count in fired.items() if hints[place])
        shares = share(hints, wanted.max_messages, turn)
        chosen = _take_shares(connection, wanted, shares, lock)
        if not any(chosen.values()):
            # The hints were wrong: take what there is.
            every = dict.fromkeys(hints, wanted.max_messages)
            chosen = _first(_take_shares(connection, wanted, every, lock), wanted.max_messages)
    chosen = {place: taken for place, taken in chosen.items() if taken}
    if wanted.max_bytes is not None and chosen:
        chosen = within_bytes(chosen, wanted.max_bytes, picked.ranked if picked else ())
    return [taken for place in sorted(chosen) for taken in chosen[place]]


def _take_shares(
    connection: Connection, wanted: Wanted, shares: Mapping[Place, int | None], lock: str | None
) -> dict[Place, list[Taken]]:
    most = max(MAX_SLICES // max(len(shares), 1), 1)
    chosen = {}
    for place, count in shares.items():
        if count == 0:
            continue
        number = most if count is None else min(count, most)
        found = fetch(
            connection,
            *eligible(connection, wanted),
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
    wanted: Wanted,
    shards: Collection[Place],
    picked: IdSet,
    lock: str | None,
) -> dict[Place, list[Taken]]:
    """What is still there of what was picked, in some shards whose turn was taken."""
    found = fetch(
        connection,
        *eligible(connection, wanted),
        dialect.one_of(connection, slices.c.segment_id, picked.segments),
        lock="skip" if lock else None,
    )
    whole = {piece.id: piece for piece in found}
    chosen: dict[Place, list[Taken]] = {}
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


def _first(chosen: Mapping[Place, list[Taken]], limit: int) -> dict[Place, list[Taken]]:
    """Within a limit over all shards, what was taken from each without looking at the others."""
    sizes = {place: sum(len(rows) for _, rows in taken) for place, taken in chosen.items()}
    shares = share(sizes, limit)
    return {place: take([s for s, _ in chosen[place]], count) for place, count in shares.items()}


def by_place(pieces: Sequence[Slice]) -> dict[Place, list[Slice]]:
    """Slices of each shard, in their order."""
    found: dict[Place, list[Slice]] = {}
    for piece in pieces:
        found.setdefault((piece.queue_id, int(piece.magazine), piece.shard), []).append(piece)
    return found


def by_horizon(taken: Sequence[Taken], wanted: Wanted, place: Place) -> list[Taken]:
    """What was loaded by the horizon; a compacted slice may lie on both sides of it."""
    if wanted.horizon is None:
        return list(taken)
    return before(taken, wanted.horizon.pointers.get(place, 0))
