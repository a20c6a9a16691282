"""Fetch the slices of some segments that are eligible for a request."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, Literal

from sqlalchemy import Connection, Select, bindparam, select, tuple_

from queue_core.catalog import dialect
from queue_core.catalog.slices import fetch, fetch_given
from queue_core.catalog.tables import slices
from queue_core.model import Slice, State
from queue_core.selection.conditions import eligible_slices, not_fired_since
from queue_core.selection.request import FireRequest


def fetch_of_segments(
    connection: Connection,
    request: FireRequest,
    segments: Collection[int],
    lock: Literal["skip"] | None = None,
) -> list[Slice]:
    """Return eligible slices in order of queue, magazine, shard and position; *lock* as `fetch`."""
    database = dialect.of(connection)
    is_plain = len(request.queue_ids) == 1 and not request.rules
    if is_plain and request.within is not None and request.shards is not None:
        (first, last), (queue_id,) = request.within, request.queue_ids
        given = {
            "queue": queue_id,
            "magazine": int(request.magazine),
            "first_shard": first[0],
            "first_position": first[1],
            "last_shard": last[0],
            "last_position": last[1],
            "of_shards": database.listed(request.shards),
            "of_segments": database.listed(segments),
        }
        horizon = request.horizon
        if horizon is not None:
            given["horizon"] = horizon.at
        query = _in_stretch(database, with_horizon=horizon is not None)
        return fetch_given(connection, query, given, lock)
    conditions = eligible_slices(connection, request, by_segment=True)
    return fetch(connection, database.one_of(slices.c.segment_id, segments), *conditions, lock=lock)


# Built once: to build a statement takes several times as long as SQLite needs to run it.
@lru_cache(maxsize=4)
def _in_stretch(database: dialect.Dialect, *, with_horizon: bool) -> Select[Any]:
    place = (slices.c.shard, slices.c.position)
    first, last = (
        [bindparam(f"{end}_{column.name}", type_=column.type) for column in place]
        for end in ("first", "last")
    )
    query = select(slices).where(
        slices.c.queue_id == bindparam("queue"),
        slices.c.magazine == bindparam("magazine"),
        slices.c.state == int(State.LOADED),
        tuple_(*place) >= tuple_(*first),
        tuple_(*place) <= tuple_(*last),
        database.one_of_given(slices.c.shard, "of_shards"),
        database.one_of_given(slices.c.segment_id, "of_segments"),
    )
    if with_horizon:
        query = query.where(not_fired_since(bindparam("horizon", type_=slices.c.fired_at.type)))
    return query
