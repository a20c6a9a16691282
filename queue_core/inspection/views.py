"""The metadata views as the catalog fills them; `queue_core.views` has their columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, and_, case, func, select

from queue_core.catalog import failures, jobs, queues, task_log
from queue_core.catalog.consumers import reserved
from queue_core.catalog.damage import UNREADABLE, decoding
from queue_core.catalog.database import Catalog
from queue_core.catalog.tables import (
    breakers,
    consumers,
    counters,
    interests,
    segments,
    shard_totals,
    shards,
    slices,
    turns,
)
from queue_core.catalog.tables import jobs as job_rows
from queue_core.catalog.tables import queues as queue_rows
from queue_core.due import NEVER
from queue_core.inspection.sideline import sideline
from queue_core.model import Magazine, State
from queue_core.views import FAILURES, SHARDS, VIEWS


def view(catalog: Catalog, name: str, queue: str | None = None) -> pa.Table:
    """
    One of the `VIEWS`, of one queue or of all.

    Raises `NoSuchQueue`. The view of consumers is of the whole store.
    """
    with catalog.read() as connection:
        found = [queues.find(connection, queue)] if queue else queues.find_all(connection)
        names = {info.id: info.name for info in found}
        if name == "failures":
            return _failures(connection, names)
        if name == "sideline":
            return sideline(connection, names)
        if name == "reports":
            # Tasks of the store belong to no queue.
            return task_log.read(connection, found if queue else [*found, None])
        rows = _QUERIES[name](connection, names)
        return _as_table([dict(row) for row in rows], name)


def _as_table(rows: list[dict[str, Any]], name: str) -> pa.Table:
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


def _failures(connection: Connection, names: Mapping[int, str]) -> pa.Table:
    tables = [FAILURES.empty_table()]
    for queue_id, name in names.items():
        found = failures.read(connection, [queue_id])
        label = pa.repeat(pa.scalar(name), found.num_rows)
        tables.append(pa.table([label, *found.columns], schema=FAILURES))
    return pa.concat_tables(tables)


def _queues(connection: Connection, names: Mapping[int, str]) -> Iterable[Mapping[str, Any]]:
    def messages(*where: Any) -> Any:
        return func.coalesce(
            func.sum(case((and_(*where), slices.c.count), else_=0)),
            0,
        )

    loaded = slices.c.state == int(State.LOADED)
    aside = slices.c.magazine == int(Magazine.SIDELINE)
    found = connection.execute(
        select(
            queue_rows.c.id,
            messages(loaded, slices.c.magazine == int(Magazine.MAIN)).label("waiting"),
            messages(slices.c.state == int(State.FIRED)).label("in_flight"),
            messages(loaded, aside).label("sidelined"),
            messages(loaded, aside, slices.c.due_at < NEVER).label("retrying"),
            messages(loaded, aside, slices.c.due_at == NEVER).label("dead"),
            messages(slices.c.state == int(State.DAMAGED)).label("damaged"),
            func.coalesce(func.sum(slices.c.bytes), 0).label("bytes"),
        )
        .select_from(queue_rows.outerjoin(slices, slices.c.queue_id == queue_rows.c.id))
        .group_by(queue_rows.c.id)
    )
    counts = {row.id: row._asdict() for row in found}
    for info in queues.find_all(connection):
        if info.id in names:
            yield counts[info.id] | {
                "queue": info.name,
                "shards": info.shards,
                "key": info.key,
                "columns": ", ".join(f"{field.name} {field.type}" for field in info.schema),
                "settings": info.settings.to_json(),
                "created_at": info.created_at,
                "deactivated_at": info.deactivated_at,
                "paused_at": info.paused_at,
            }


def _shards(connection: Connection, names: Mapping[int, str]) -> Iterable[Mapping[str, Any]]:
    there = {
        (row.queue_id, row.magazine, row.shard, row.state): int(row.messages)
        for row in connection.execute(
            select(
                slices.c.queue_id,
                slices.c.magazine,
                slices.c.shard,
                slices.c.state,
                func.sum(slices.c.count).label("messages"),
            ).group_by(slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.state)
        )
    }
    counts = [c for table in (turns, counters) for c in table.c if c.name in SHARDS.names]
    rows = connection.execute(
        select(shards, *counts)
        .select_from(shard_totals)
        .order_by(shards.c.queue_id, shards.c.magazine, shards.c.shard)
    )
    for row in rows.mappings():
        if row["queue_id"] in names:
            place = (row["queue_id"], row["magazine"], row["shard"])
            with decoding(shards, f"queue_id {place[0]}, magazine {place[1]} and shard {place[2]}"):
                magazine = Magazine(row["magazine"]).name.lower()
            yield dict(row) | {
                "queue": names[row["queue_id"]],
                "magazine": magazine,
                "waiting": there.get((*place, int(State.LOADED)), 0),
                "in_flight": there.get((*place, int(State.FIRED)), 0),
            }


def _slices(connection: Connection, names: Mapping[int, str]) -> Iterable[Mapping[str, Any]]:
    rows = connection.execute(
        select(slices, segments.c.location, consumers.c.name.label("consumer"))
        .join(segments, segments.c.id == slices.c.segment_id)
        .outerjoin(consumers, consumers.c.id == slices.c.consumer_id)
        .order_by(slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.position)
    )
    for row in rows.mappings():
        if row["queue_id"] in names:
            with decoding(slices, f"id {row['id']}"):
                where = {
                    "magazine": Magazine(row["magazine"]).name.lower(),
                    "state": State(row["state"]).name.lower(),
                }
            yield dict(row) | {
                "queue": names[row["queue_id"]],
                "messages": row["count"],
                **where,
            }


def _consumers(connection: Connection, names: Mapping[int, str]) -> Iterable[Mapping[str, Any]]:
    wanted: dict[int, list[Any]] = defaultdict(list)
    for interest in connection.execute(select(interests).order_by(interests.c.queue_id)):
        wanted[interest.consumer_id].append(interest)
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
    for row in rows.mappings():
        own = wanted[row["id"]]
        wants = [names[each.queue_id] for each in own if each.interested and each.queue_id in names]
        yield dict(row) | {
            "consumer_id": row["id"],
            "priority": own[0].priority if own else None,
            "interested": ", ".join(wants) if own else None,
            "claim": own[0].claim if own else None,
        }


def _breakers(connection: Connection, _: Mapping[int, str]) -> Iterable[Mapping[str, Any]]:
    order = (breakers.c.name, breakers.c.value)
    for row in connection.execute(select(breakers).order_by(*order)).mappings():
        yield dict(row) | {"breaker": row["name"]}


_QUERIES = {
    "queues": _queues,
    "shards": _shards,
    "slices": _slices,
    "consumers": _consumers,
    "jobs": jobs.shown,
    "breakers": _breakers,
}

#: The tables from which each view has its columns.
_TABLES = {
    "queues": (queue_rows,),
    "shards": (shards, turns, counters),
    "slices": (slices,),
    "consumers": (consumers, interests),
    "jobs": (job_rows,),
    "breakers": (breakers,),
}
