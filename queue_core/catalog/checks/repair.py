"""Repair findings: quarantine messages, count again, and remove rows without a meaning.

Changes: the slices that a finding concerns become damaged, and the counters of their shards are
computed from the slices. Guard: the rows are locked in the order of all verbs. Crash before the
commit: nothing was repaired.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Connection, Table, and_, delete, func, insert, or_, select, update

from queue_core.catalog import dialect, seals
from queue_core.catalog.checks.counters import known_places
from queue_core.catalog.checks.finding import Finding, Remedy
from queue_core.catalog.database import Catalog
from queue_core.catalog.records.acts import noting
from queue_core.catalog.tables import (
    LEFT,
    counters,
    files,
    metadata,
    segments,
    shard_locks,
    shards,
    slices,
)
from queue_core.values.model import Magazine, State

_Place = tuple[int, int, int]
_TABLES: tuple[Table, ...] = (shard_locks, shards, counters)
#: A pointer further beyond the messages is damaged.
_LEAP = 1 << 40
_DAMAGED = int(State.DAMAGED)


def repair(catalog: Catalog, findings: Iterable[Finding]) -> None:
    """Repair findings where possible."""
    found = list(findings)

    def work(connection: Connection) -> None:
        by_remedy = {remedy: [one for one in found if one.remedy is remedy] for remedy in Remedy}
        for one in by_remedy[Remedy.RESTATE]:
            _restate(connection, str(one.key[0]))
        for one in by_remedy[Remedy.REMOVE]:
            _remove(connection, one)
        pieces = _slices_of(connection, by_remedy[Remedy.SET_APART])
        places = {(row.queue_id, row.magazine, row.shard) for row in pieces}
        for one in by_remedy[Remedy.RECOUNT]:
            queue_id, magazine, shard = map(int, one.key)
            places.add((queue_id, magazine, shard))
        known = known_places(connection)
        stray = places - known
        for place in sorted(places & known):
            locked = select(shard_locks).where(_at(shard_locks, place)).with_for_update()
            connection.execute(locked)
        own = {int(one.key[0]) for one in by_remedy[Remedy.SET_APART] if one.table == slices.name}
        places |= _set_apart(connection, {row.id: row.id in own for row in pieces}, known)
        for place in sorted(stray):
            _remove_stray(connection, place)
        for place in sorted(places & known):
            _recount(connection, place)

    catalog.write(noting(work))


def _restate(connection: Connection, location: str) -> None:
    """Mark a file as live if it holds a segment, and as garbage otherwise."""
    named = select(segments.c.id).where(segments.c.file == location)
    state = "garbage" if connection.scalar(named) is None else "live"
    new = dialect.upsert(dialect.of(connection), files, "state", "since")
    connection.execute(new.values(location=location, state=state, since=dialect.now()))


def _remove(connection: Connection, found: Finding) -> None:
    table = metadata.tables[found.table]
    keys = zip(table.primary_key, found.key, strict=True)
    connection.execute(delete(table).where(*(column == value for column, value in keys)))


def _slices_of(connection: Connection, findings: Collection[Finding]) -> list[Any]:
    """Return the slices of findings, and the slices of their segments."""
    own = [int(one.key[0]) for one in findings if one.table == slices.name]
    theirs = [int(one.key[0]) for one in findings if one.table != slices.name]
    columns = (slices.c.id, slices.c.queue_id, slices.c.magazine, slices.c.shard)
    query = select(*columns).where(
        or_(
            dialect.one_of(slices.c.id, own),
            dialect.one_of(slices.c.segment_id, theirs),
        )
    )
    return list(connection.execute(query))


def _set_apart(connection: Connection, ids: dict[int, bool], known: set[_Place]) -> set[_Place]:
    """Mark slices as damaged, or put them in their shard; *ids*: which are wrong themselves."""
    query = select(slices).where(dialect.one_of(slices.c.id, list(ids)))
    places = set()
    for row in connection.execute(query.order_by(slices.c.id).with_for_update()).all():
        place = (row.queue_id, row.magazine, row.shard)
        new = _true_place(row, known) if place not in known else None
        values: dict[str, int | None]
        if new is not None:
            values = _keys(new)
            places.add(new)
        else:
            left = ("consumer_id", "ticket") if ids[row.id] else ()
            values = {"state": _DAMAGED, **dict.fromkeys(left)}
            if row.magazine == int(Magazine.MAIN):
                values["due_at"] = None
            if not left and row.state == int(State.FIRED):
                # As by a quarantine: its consumer may have read them, and settles them.
                more = update(counters).where(_at(counters, place))
                connection.execute(more.values(reloaded=counters.c.reloaded + row.count))
            places.add(place)
        fresh = seals.seal(slices, {**row._asdict(), **values})
        here = slices.c.id == row.id
        connection.execute(update(slices).where(here).values(**values, seal=fresh))
    return places


def _true_place(row: Any, known: set[_Place]) -> _Place | None:
    """Return the shard with which a slice has its seal, if there is one."""
    found = [
        place
        for place in known
        if seals.seal(slices, {**row._asdict(), **_keys(place)}) == row.seal
    ]
    return found[0] if len(found) == 1 else None


def _remove_stray(connection: Connection, place: _Place) -> None:
    """Remove the rows of a shard that no queue has, unless messages are in it."""
    for table in _TABLES:
        connection.execute(
            delete(table).where(
                _at(table, place), ~select(slices.c.id).where(_at(slices, place)).exists()
            )
        )


def _recount(connection: Connection, place: _Place) -> None:
    """Compute the counters and pointers of a shard from its slices."""
    turn, load, count = (_row(connection, table, place) for table in _TABLES)
    here = _at(slices, place)
    end = slices.c.position + slices.c.row_stop - slices.c.row_start
    sane = and_(here, slices.c.position.between(0, _LEAP))
    last = int(connection.scalar(select(func.max(end)).where(sane)) or 0)
    states = {
        row.state: int(row.messages)
        for row in connection.execute(
            select(slices.c.state, func.sum(slices.c.count).label("messages"))
            .where(here)
            .group_by(slices.c.state)
        )
    }
    for name, value in count.items():
        count[name] = max(value, 0)
    count["damaged"] = states.get(_DAMAGED, 0)
    left = sum(count[name] for name in LEFT)
    load["loaded"] = left + sum(states.values())
    # As if it was never found.
    turn["head"] = 0
    turn["fired"] = count["reloaded"] + left + states.get(int(State.FIRED), 0)
    if not last <= load["load_pointer"] <= last + _LEAP:
        load["load_pointer"] = last
    for row, name in ((turn, "fire_pointer"), (count, "sweep_pointer")):
        row[name] = min(max(row[name], 0), load["load_pointer"])
    for table, row in zip(_TABLES, (turn, load, count), strict=True):
        row["version"] += 1
        fresh = seals.seal(table, {**row, **_keys(place)})
        connection.execute(update(table).where(_at(table, place)).values(**row, seal=fresh))


def _row(connection: Connection, table: Table, place: _Place) -> dict[str, int]:
    """Return the numbers of a shard, locked; make the row if it is missing."""
    keys = _keys(place)
    names = [column.name for column in table.c if column.name not in (*keys, "seal")]
    query = select(table).where(_at(table, place)).with_for_update()
    row = connection.execute(query).mappings().first()
    if row is not None:
        return {name: int(row[name]) for name in names}
    new = dict.fromkeys(names, 0)
    connection.execute(insert(table).values(**keys, **new))
    return new


def _keys(place: _Place) -> dict[str, int | None]:
    return dict(zip(("queue_id", "magazine", "shard"), place, strict=True))


def _at(table: Table, place: _Place) -> Any:
    return and_(*(table.c[name] == value for name, value in _keys(place).items()))
