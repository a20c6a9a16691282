"""Counters and pointers agree with the messages (I16 to I20, I35).

The slices are counted by the database; the shards, of which there are few, one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Table, func, select

from queue_core.catalog.checks.finding import Finding, Remedy
from queue_core.catalog.checks.rules import ALTERED, Scope, is_altered
from queue_core.catalog.tables import LEFT, counters, queues, shard_locks, shards, slices
from queue_core.values.model import Magazine, State

_TABLES = (shards, shard_locks, counters)

_Place = tuple[int, int, int]


def check_shards(scope: Scope) -> Iterator[Finding]:
    """Check that each shard has its three rows, and that these agree with its slices."""
    rows = {table.name: _by_place(scope, table) for table in _TABLES}
    there, first = count_slices(scope)
    wanted = known_places(scope.connection)
    for table in _TABLES:
        known = rows[table.name]
        for place in sorted(wanted - known.keys()):
            yield _of("I16", table.name, place, "the row of a shard is missing")
        for place in sorted(known.keys() - wanted):
            yield _of("I16", table.name, place, "its queue has no such shard")
        for place, row in known.items():
            if is_altered(table, row):
                yield _of("I1", table.name, place, ALTERED)
    for place in sorted(wanted):
        load, turn, count = (rows[table.name].get(place) for table in _TABLES)
        if load is not None and turn is not None and count is not None:
            yield from _check_sums(place, load, turn, count, there[place])
            is_valid = turn["head_released"] == count["released"]
            if is_valid and first.get(place, turn["head"]) < turn["head"]:
                yield _of("I35", shard_locks.name, place, "a message waits before its head")


def known_places(connection: Connection) -> set[_Place]:
    """Return the shards that the queues have."""
    return {
        (queue.id, int(magazine), shard)
        for queue in connection.execute(select(queues.c.id, queues.c.shards))
        for magazine in Magazine
        for shard in range(min(max(queue.shards, 0), 1 << 12))
    }


def count_slices(scope: Scope) -> tuple[dict[_Place, dict[int, int]], dict[_Place, int]]:
    """Return the number of messages in each state, and the first place that waits, by shard."""
    here = (slices.c.queue_id, slices.c.magazine, slices.c.shard)
    found: dict[_Place, dict[int, int]] = defaultdict(dict)
    waiting: dict[_Place, int] = {}
    messages = func.sum(slices.c.count).label("messages")
    first = func.min(slices.c.position).label("first")
    for row in scope.connection.execute(
        select(*here, slices.c.state, messages, first).group_by(*here, slices.c.state)
    ):
        place = (row.queue_id, row.magazine, row.shard)
        found[place][row.state] = int(row.messages)
        if row.state == State.LOADED:
            waiting[place] = int(row.first)
    return found, waiting


def _by_place(scope: Scope, table: Table) -> dict[_Place, Any]:
    rows = scope.connection.execute(select(table)).mappings()
    return {(row["queue_id"], row["magazine"], row["shard"]): row for row in rows}


def _check_sums(
    place: _Place, load: Any, turn: Any, count: Any, there: dict[int, int]
) -> Iterator[Finding]:
    left = sum(count[name] for name in LEFT)
    present = sum(there.values())
    fired, damaged = (there.get(int(state), 0) for state in (State.FIRED, State.DAMAGED))
    if load["loaded"] != left + present:
        came = f"{load['loaded']} messages came in, {left} left, and {present} are there"
        yield _of("I17", shards.name, place, came)
    in_flight = turn["fired"] - count["reloaded"] - left
    if in_flight != fired:
        text = f"{in_flight} messages are in flight by the counters, and {fired} by the slices"
        yield _of("I18", shard_locks.name, place, text)
    if count["damaged"] != damaged:
        text = f"{count['damaged']} messages are damaged by the counters, and {damaged} are there"
        yield _of("I19", counters.name, place, text)
    if max(turn["fire_pointer"], count["sweep_pointer"]) > load["load_pointer"]:
        yield _of("I20", shard_locks.name, place, "a pointer is beyond the load pointer")
    elif min(row[name] for row in (load, turn, count) for name in row if name != "seal") < 0:
        yield _of("I20", counters.name, place, "a counter is negative")


def _of(invariant: str, table: str, place: _Place, problem: str) -> Finding:
    return Finding(
        invariant=invariant,
        table=table,
        key=place,
        queue_id=place[0],
        problem=problem,
        remedy=Remedy.RECOUNT,
    )
