"""The rows of the tables behind the metadata views, with what the catalog knows of each.

*only* are the ids of the queues whose rows are read; None: those of all queues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Row, RowMapping, case, func, select

from queue_core.catalog import dialect
from queue_core.catalog.damage import UNREADABLE, decoding
from queue_core.catalog.holder_tables import consumers, interests
from queue_core.catalog.holders.consumers import reserved
from queue_core.catalog.record_tables import acts, breakers, jobs, samples, traces
from queue_core.catalog.slices.shard_locks import BEHIND
from queue_core.catalog.tables import (
    LEFT,
    counters,
    log_slices,
    queues,
    segments,
    shard_locks,
    shard_totals,
    shards,
    slices,
    token_buckets,
)
from queue_core.values.model import Magazine, State
from queue_core.values.views import SHARDS, VIEWS

#: The tables from which each view has its columns.
_TABLES = {
    "queues": (queues,),
    "shards": (shards, shard_locks, counters),
    "slices": (slices,),
    "consumers": (consumers, interests),
    "traces": (traces,),
    "jobs": (jobs,),
    "acts": (acts,),
    "breakers": (breakers,),
    "samples": (samples,),
    "limits": (token_buckets,),
    "subscriptions": (queues,),
    "logs": (log_slices, shards),
    "retained": (queues,),
}


def counted(connection: Connection, only: Collection[int] | None) -> Iterator[dict[str, Any]]:
    """
    Yield the pointers and counters of each shard, and how many messages wait and are in flight.

    By invariants I18 and I19, the counters yield the numbers of messages, however many slices there
    are.
    """
    counts = [c for table in (shard_locks, counters) for c in table.c if c.name in SHARDS.names]
    rows = connection.execute(
        select(shards, *counts, BEHIND.label("behind"))
        .select_from(shard_totals)
        .where(*dialect.among(shards.c.queue_id, only))
        .order_by(shards.c.queue_id, shards.c.magazine, shards.c.shard)
    )
    for row in rows.mappings():
        found = dict(row)
        try:
            waiting = (
                row["loaded"] + row["reloaded"] - row["fired"] - row["damaged"] + row["behind"]
            )
            in_flight = row["fired"] - row["reloaded"] - sum(row[name] for name in LEFT)
        except UNREADABLE:
            for table in (shards, shard_locks, counters):
                with decoding(table, _place_of(found)):
                    sum(row[c.name] for c in table.c if c.name in SHARDS.names)
            raise
        yield found | {"waiting": waiting, "in_flight": in_flight}


def name_of_magazine(row: Mapping[str, Any]) -> str:
    """Return the name of the magazine of a row of `counted`; raises `DamagedCatalog`."""
    with decoding(shards, _place_of(row)):
        return Magazine(row["magazine"]).name.lower()


def _place_of(row: Mapping[str, Any]) -> str:
    return f"queue_id {row['queue_id']}, magazine {row['magazine']} and shard {row['shard']}"


def slices_in_order(connection: Connection, only: Collection[int] | None) -> Iterator[RowMapping]:
    """Yield the slices, each with the `location` of its segment and the name of its `consumer`."""
    rows = connection.execute(
        select(slices, segments.c.file.label("location"), consumers.c.name.label("consumer"))
        .join(segments, segments.c.id == slices.c.segment_id)
        .outerjoin(consumers, consumers.c.id == slices.c.consumer_id)
        .where(*dialect.among(slices.c.queue_id, only))
        .order_by(slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.position)
    )
    yield from rows.mappings()


def names_of_state(row: RowMapping) -> dict[str, str]:
    """Return the names of the magazine and the state of a slice; raises `DamagedCatalog`."""
    with decoding(slices, f"id {row['id']}"):
        return {
            "magazine": Magazine(row["magazine"]).name.lower(),
            "state": State(row["state"]).name.lower(),
        }


def interests_in_order(connection: Connection) -> Sequence[Row[Any]]:
    """Return the interests of all consumers, in order of the queues."""
    return connection.execute(select(interests).order_by(interests.c.queue_id)).all()


def consumers_in_order(connection: Connection) -> Iterator[RowMapping]:
    """Yield the consumers by name, with their messages `in_flight` and those `for_restart`."""
    rows = connection.execute(
        select(
            consumers,
            consumers.c.name.label("consumer"),
            func.coalesce(func.sum(slices.c.count), 0).label("in_flight"),
            func.coalesce(func.sum(case((reserved(), slices.c.count), else_=0)), 0).label(
                "for_restart"
            ),
        )
        .outerjoin(slices, slices.c.consumer_id == consumers.c.id)
        .group_by(consumers.c.id)
        .order_by(consumers.c.name)
    )
    yield from rows.mappings()


def as_table(rows: list[dict[str, Any]], name: str) -> pa.Table:
    """Return the rows of a view; raises `DamagedCatalog` for a value of another kind."""
    try:
        return pa.Table.from_pylist(rows, schema=VIEWS[name])
    except UNREADABLE:
        for row in rows:
            for field in VIEWS[name]:
                table = next((t for t in _TABLES[name] if field.name in t.c), _TABLES[name][0])
                keys = [key.name for key in table.primary_key if key.name in row]
                with decoding(table, " and ".join(f"{key} {row[key]}" for key in keys)):
                    pa.array([row.get(field.name)], field.type)
        raise
