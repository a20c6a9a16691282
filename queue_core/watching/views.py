"""The metadata views as the catalog fills them; `queue_core.values.views` has their columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import BigInteger, Column, ColumnElement, Connection, Select, case, func, select

from queue_core.catalog import dialect, queues
from queue_core.catalog.damage import UNREADABLE, decoding
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import reserved
from queue_core.catalog.records import failures, figures, jobs, samples, task_log
from queue_core.catalog.tables import (
    LEFT,
    allotments,
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
from queue_core.catalog.tables import samples as sample_rows
from queue_core.values.due import NEVER
from queue_core.values.model import Magazine, QueueInfo, State
from queue_core.values.views import FAILURES, SHARDS, VIEWS
from queue_core.watching.limits import limits
from queue_core.watching.sideline import sideline

#: The columns of the view of queues that count.
_COUNTED = ("waiting", "in_flight", "sidelined", "retrying", "dead", "damaged", "bytes")


def view(catalog: Catalog, name: str, queue: str | QueueInfo | None, storage: str) -> pa.Table:
    """
    One of the `VIEWS`, of one queue or of all; *storage*: the URI of the store's segments.

    A *queue* of this name, or this very queue, whatever has its name by now.

    A view of one queue reads no row of other queues. Raises `NoSuchQueue`. The view of consumers is
    of the whole store.
    """
    with catalog.read() as connection:
        return read(connection, name, queue, storage)


def read(
    connection: Connection, name: str, queue: str | QueueInfo | None, storage: str
) -> pa.Table:
    """Return the same in a transaction of the caller."""
    if isinstance(queue, str) and queue and name in ("failures", "sideline"):
        queue, _ = queues.find_magazine(connection, queue)
    found = _asked(connection, queue)
    if name == "reports":
        # Tasks of the store belong to no queue.
        return task_log.read(connection, found if queue else [*found, None])
    shown = Shown({info.id: info for info in found}, queue is None, storage)
    if name == "failures":
        return _failures(connection, shown)
    if name == "sideline":
        return sideline(connection, {info.id: info.name for info in found})
    rows = _QUERIES[name](connection, shown)
    return _as_table([dict(row) for row in rows], name)


def read_samples(catalog: Catalog, queue: str | None, seconds: int) -> pa.Table:
    """Return the view ``samples`` with rows of *seconds* alone; raises `NoSuchQueue`."""
    with catalog.read() as connection:
        found = _asked(connection, queue)
        rows = samples.read(connection, [info.id for info in found], seconds)
        return _as_table([row._asdict() for row in rows], "samples")


def _asked(connection: Connection, queue: str | QueueInfo | None) -> list[QueueInfo]:
    if not queue:
        return queues.find_all(connection)
    if isinstance(queue, QueueInfo):
        return [queues.present(connection, queue)]
    return [queues.find(connection, queue)]


@dataclass(frozen=True, slots=True)
class Shown:
    """The queues that a view shows, by id."""

    infos: Mapping[int, QueueInfo]
    everything: bool
    storage: str

    def rows(self, connection: Connection, queue_id: Column[int]) -> list[ColumnElement[bool]]:
        """Return the condition of rows that belong to these queues."""
        if self.everything:
            return []
        return [dialect.of(connection).one_of(queue_id, list(self.infos))]


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


def _failures(connection: Connection, shown: Shown) -> pa.Table:
    names = {info.id: info.name for info in shown.infos.values()}
    tables = [FAILURES.empty_table()]
    for queue_id, found in failures.read(connection, list(names)):
        label = pa.repeat(pa.scalar(names[queue_id]), found.num_rows)
        tables.append(pa.table([label, *found.columns], schema=FAILURES))
    return pa.concat_tables(tables)


def _queues(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    totals: dict[int, Counter[str]] = defaultdict(Counter)
    for row in _counted(connection, shown):
        main = row["magazine"] == int(Magazine.MAIN)
        totals[row["queue_id"]].update(
            {
                "waiting" if main else "sidelined": row["waiting"],
                "in_flight": row["in_flight"],
                "damaged": row["damaged"],
            }
        )
    size = func.coalesce(func.sum(slices.c.bytes), 0).label("bytes")
    for sizes in connection.execute(
        select(slices.c.queue_id, size)
        .where(*shown.rows(connection, slices.c.queue_id))
        .group_by(slices.c.queue_id)
    ):
        totals[sizes.queue_id]["bytes"] = sizes.bytes
    for aside in connection.execute(_aside(shown, connection)):
        totals[aside.queue_id].update(retrying=aside.retrying, dead=aside.dead)
    only = None if shown.everything else list(shown.infos)
    ages = {row.queue_id: row.oldest_age for row in figures.read(connection, only)}
    for info in shown.infos.values():
        counts = totals[info.id]
        age = ages.get(info.id)
        yield {name: counts[name] for name in _COUNTED} | {
            "id": info.id,
            "queue": info.name,
            "oldest_age": None if age is None else age / 1e6,
            "shards": info.shards,
            "key": info.key,
            "columns": ", ".join(f"{field.name} {field.type}" for field in info.schema),
            "settings": info.settings.to_json(),
            "created_at": info.created_at,
            "deactivated_at": info.deactivated_at,
            "paused_at": info.paused_at,
        }


def _aside(shown: Shown, connection: Connection) -> Select[Any]:
    """Count the messages in sidelines that are retried later, and those that are dead."""

    def messages(which: ColumnElement[bool]) -> ColumnElement[int]:
        return func.sum(case((which, slices.c.count), else_=0)).cast(BigInteger)

    return (
        select(
            slices.c.queue_id,
            messages(slices.c.due_at < NEVER).label("retrying"),
            messages(slices.c.due_at == NEVER).label("dead"),
        )
        .where(
            *shown.rows(connection, slices.c.queue_id),
            slices.c.magazine == int(Magazine.SIDELINE),
            slices.c.state == int(State.LOADED),
        )
        .group_by(slices.c.queue_id)
    )


def _counted(connection: Connection, shown: Shown) -> Iterator[dict[str, Any]]:
    """
    Yield the pointers and counters of each shard, and how many messages wait and are in flight.

    By invariants I18 and I19, the counters yield the numbers of messages, however many slices there
    are.
    """
    counts = [c for table in (turns, counters) for c in table.c if c.name in SHARDS.names]
    rows = connection.execute(
        select(shards, *counts)
        .select_from(shard_totals)
        .where(*shown.rows(connection, shards.c.queue_id))
        .order_by(shards.c.queue_id, shards.c.magazine, shards.c.shard)
    )
    for row in rows.mappings():
        try:
            waiting = row["loaded"] + row["reloaded"] - row["fired"] - row["damaged"]
            in_flight = row["fired"] - row["reloaded"] - sum(row[name] for name in LEFT)
        except UNREADABLE:
            for table in (shards, turns, counters):
                with decoding(table, _place_of(dict(row))):
                    sum(row[c.name] for c in table.c if c.name in SHARDS.names)
            raise
        yield dict(row) | {"waiting": waiting, "in_flight": in_flight}


def _shards(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    for row in _counted(connection, shown):
        if row["queue_id"] in shown.infos:
            with decoding(shards, _place_of(row)):
                magazine = Magazine(row["magazine"]).name.lower()
            yield row | {"queue": shown.infos[row["queue_id"]].name, "magazine": magazine}


def _place_of(row: Mapping[str, Any]) -> str:
    return f"queue_id {row['queue_id']}, magazine {row['magazine']} and shard {row['shard']}"


def _slices(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    rows = connection.execute(
        select(slices, segments.c.location, consumers.c.name.label("consumer"))
        .join(segments, segments.c.id == slices.c.segment_id)
        .outerjoin(consumers, consumers.c.id == slices.c.consumer_id)
        .where(*shown.rows(connection, slices.c.queue_id))
        .order_by(slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.position)
    )
    for row in rows.mappings():
        if row["queue_id"] in shown.infos:
            with decoding(slices, f"id {row['id']}"):
                where = {
                    "magazine": Magazine(row["magazine"]).name.lower(),
                    "state": State(row["state"]).name.lower(),
                }
            yield dict(row) | {
                "queue": shown.infos[row["queue_id"]].name,
                "messages": row["count"],
                **where,
            }


def _consumers(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
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
        wants = [
            shown.infos[each.queue_id].name
            for each in own
            if each.interested and each.queue_id in shown.infos
        ]
        yield dict(row) | {
            "consumer_id": row["id"],
            "priority": own[0].priority if own else None,
            "interested": ", ".join(wants) if own else None,
            "claim": own[0].claim if own else None,
        }


def _jobs(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    return jobs.shown(connection, {info.id: info.name for info in shown.infos.values()})


def _breakers(connection: Connection, _: Shown) -> Iterable[Mapping[str, Any]]:
    order = (breakers.c.name, breakers.c.value)
    for row in connection.execute(select(breakers).order_by(*order)).mappings():
        yield dict(row) | {"breaker": row["name"]}


def _samples(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    return (row._asdict() for row in samples.read(connection, [*shown.infos], None))


def _limits(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    return limits(connection, shown.infos.values(), shown.storage)


_QUERIES = {
    "queues": _queues,
    "shards": _shards,
    "slices": _slices,
    "consumers": _consumers,
    "jobs": _jobs,
    "breakers": _breakers,
    "samples": _samples,
    "limits": _limits,
}

#: The tables from which each view has its columns.
_TABLES = {
    "queues": (queue_rows,),
    "shards": (shards, turns, counters),
    "slices": (slices,),
    "consumers": (consumers, interests),
    "jobs": (job_rows,),
    "breakers": (breakers,),
    "samples": (sample_rows,),
    "limits": (allotments,),
}
