"""The metadata views as the catalog fills them; `queue_core.values.views` has their columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect, queues, view_rows
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.interests import NONE, SHARED
from queue_core.catalog.records import (
    acts,
    breakers,
    failures,
    figures,
    jobs,
    lags,
    samples,
    task_log,
    token_buckets,
    traces,
)
from queue_core.catalog.records.token_buckets import BucketKey
from queue_core.catalog.slices import amounts, logs
from queue_core.values import buckets
from queue_core.values.fingerprints import fingerprints
from queue_core.values.limits import Limit
from queue_core.values.model import QueueInfo
from queue_core.values.names import is_snapshot
from queue_core.values.views import FAILURES

#: This very queue, whatever has its name by now, or those of a name or of some names; None: all.
Asked: TypeAlias = str | QueueInfo | Sequence[str] | None

#: Microseconds of the samples of how long messages took.
_LATELY = 300_000_000
#: The columns of the view of queues that count.
_COUNTED = ("waiting", "in_flight", "sidelined", "retrying", "dead", "damaged")
#: The most values of one limit that the view shows: those with the most messages in flight, and
#: those with the fewest tokens.
MOST_VALUES = 1000


def view(catalog: Catalog, name: str, queue: Asked, storage: str) -> pa.Table:
    """
    One of the `VIEWS`, of some queues or of all; *storage*: the URI of the store's segments.

    A view of one queue reads no row of other queues, except of those that read its log. Raises
    `NoSuchQueue`. The view of consumers is of the whole store.
    """
    with catalog.read() as connection:
        return read(connection, name, queue, storage)


def read(connection: Connection, name: str, queue: Asked, storage: str) -> pa.Table:
    """Return the same in a transaction of the caller."""
    found = _asked(connection, queue, either=name in ("failures", "sideline", "traces"))
    if name == "reports":
        # Tasks of the store belong to no queue.
        return task_log.read(connection, found if queue else [*found, None])
    shown = Shown({info.id: info for info in found}, queue is None, storage)
    if name == "failures":
        return _failures(connection, shown)
    if name == "sideline":
        # Not at the top: commands that show other views wait for imports.
        from queue_core.watching.sideline import sideline

        return sideline(connection, {info.id: info.name for info in found})
    rows = _QUERIES[name](connection, shown)
    return view_rows.as_table([dict(row) for row in rows], name)


def read_samples(catalog: Catalog, queue: str | None, seconds: int) -> pa.Table:
    """Return the view ``samples`` with rows of *seconds* alone; raises `NoSuchQueue`."""
    with catalog.read() as connection:
        found = _asked(connection, queue)
        rows = samples.read(connection, [info.id for info in found], seconds)
        return view_rows.as_table([row._asdict() for row in rows], "samples")


def _asked(connection: Connection, queue: Asked, *, either: bool = False) -> list[QueueInfo]:
    """Return the queues; *either*: the name of a sideline will do, too."""
    if not queue:
        return queues.find_all(connection)
    if isinstance(queue, QueueInfo):
        return [queues.present(connection, queue)]
    names = [queue] if isinstance(queue, str) else queue
    if either:
        return [queues.find_magazine(connection, each)[0] for each in names]
    return [queues.find(connection, each) for each in names]


@dataclass(frozen=True, slots=True)
class Shown:
    """The queues that a view shows, by id."""

    infos: Mapping[int, QueueInfo]
    everything: bool
    storage: str

    @property
    def only(self) -> list[int] | None:
        """The ids of the queues; None: all."""
        return None if self.everything else list(self.infos)


def _failures(connection: Connection, shown: Shown) -> pa.Table:
    names = {info.id: info.name for info in shown.infos.values()}
    tables = [FAILURES.empty_table()]
    for queue_id, found in failures.read(connection, list(names)):
        label = pa.repeat(pa.scalar(names[queue_id]), found.num_rows)
        alike = fingerprints(found.column("kind"), found.column("reason"))
        tables.append(pa.table([label, *found.columns, alike], schema=FAILURES))
    return pa.concat_tables(tables)


def _queues(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    sizes: Counter[int] = Counter()
    for row in amounts.sizes(connection, shown.only):
        sizes[row.queue_id] += row.bytes
    present = {row.queue_id: row._asdict() for row in figures.read(connection, shown.only)}
    after = dialect.read_clock(connection) - _LATELY
    times = samples.timings_since(connection, after, shown.only)
    for info in shown.infos.values():
        counts = present.get(info.id, {})
        ages = {name: counts.get(name) for name in ("oldest_age", "longest_wait")}
        yield {name: counts.get(name) or 0 for name in _COUNTED} | {
            "id": info.id,
            "queue": info.name,
            **{name: None if age is None else age / 1e6 for name, age in ages.items()},
            "bytes": sizes[info.id],
            **{name: took / 1e6 for name, took in times.get(info.id, {}).items() if took},
            "shards": info.shards,
            "key": info.key,
            "columns": ", ".join(f"{field.name} {field.type}" for field in info.schema),
            "settings": info.settings.to_json(),
            "created_at": info.created_at,
            "deactivated_at": info.deactivated_at,
            "paused_at": info.paused_at,
            "state": _state(info),
        }


def _state(info: QueueInfo) -> str:
    if info.deactivated_at is not None:
        return "deactivated"
    return "paused" if info.is_paused else "active"


def _shards(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    for row in view_rows.counted(connection, shown.only):
        if row["queue_id"] in shown.infos:
            magazine = view_rows.name_of_magazine(row)
            yield row | {"queue": shown.infos[row["queue_id"]].name, "magazine": magazine}


def _slices(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    for row in view_rows.slices_in_order(connection, shown.only):
        if row["queue_id"] in shown.infos:
            yield dict(row) | {
                "queue": shown.infos[row["queue_id"]].name,
                "messages": row["count"],
                **view_rows.names_of_state(row),
            }


def _consumers(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    wanted: dict[int, list[Any]] = defaultdict(list)
    for interest in view_rows.interests_in_order(connection):
        wanted[interest.consumer_id].append(interest)
    for row in view_rows.consumers_in_order(connection):
        own = wanted[row["id"]]
        wants = [
            shown.infos[each.queue_id].name
            for each in own
            if (each.interested or each.claim == NONE) and each.queue_id in shown.infos
        ]
        yield dict(row) | {
            "consumer_id": row["id"],
            "priority": own[0].priority if own else None,
            "interested": ", ".join(wants) if own else None,
            "claim": (SHARED if own[0].claim == NONE else own[0].claim) if own else None,
        }


def _jobs(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    return jobs.shown(connection, {info.id: info.name for info in shown.infos.values()})


def _acts(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    names = None if shown.everything else [info.name for info in shown.infos.values()]
    return (row._asdict() | {"act": row.id} for row in acts.rows(connection, names, None))


def _traces(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    for row in traces.read(connection, list(shown.infos)):
        yield dict(row) | {
            "queue": shown.infos[row["queue_id"]].name,
            "fingerprint": row["fingerprint"] or None,
        }


def _breakers(connection: Connection, _: Shown) -> Iterable[Mapping[str, Any]]:
    for row in breakers.all_states(connection):
        yield dict(row) | {"breaker": row["name"]}


def _samples(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    return (row._asdict() for row in samples.read(connection, [*shown.infos], None))


def _limits(connection: Connection, shown: Shown) -> Iterator[Mapping[str, Any]]:
    """
    Yield a row for each limit of a queue, and for each value that a limit of values holds back.

    Those are the values with messages in flight, if the limit counts them, and those that were
    fired within the limit's window. A limit with a name has a row for each of its queues, with the
    figures of all of them.
    """
    for queue in shown.infos.values():
        for limit in queue.settings.limits:
            yield from _of_limit(connection, queue, limit, shown.storage)


def _of_limit(
    connection: Connection, queue: QueueInfo, limit: Limit, storage: str
) -> Iterator[Mapping[str, Any]]:
    shown: dict[str, Any] = {"queue": queue.name, "limit": str(limit)}
    if limit.column is None:
        in_flight = amounts.in_flight(connection, queue.id, limit.name)
        bucket = token_buckets.read(connection, BucketKey.of(queue.id, limit))
        yield shown | {"value": None, "in_flight": in_flight} | _bucket(limit, *bucket)
    else:
        spent = token_buckets.of_values(connection, queue.id, limit.column, MOST_VALUES)
        now = dialect.read_clock(connection)
        held = _held(connection, queue, limit, storage, now)
        used = {key for key, until in spent.items() if not _is_full(limit, until, now)}
        for value in [*held, *sorted(used - held.keys(), key=lambda key: (-spent[key], key))]:
            counts = {"in_flight": held.get(value, 0)} if limit.in_flight is not None else {}
            yield shown | {"value": value} | counts | _bucket(limit, spent.get(value), now)


def _held(
    connection: Connection, queue: QueueInfo, limit: Limit, storage: str, now: int
) -> dict[str, int]:
    """Return how many messages of each value are in flight, if the limit counts them."""
    if limit.in_flight is None or limit.column is None:
        return {}
    from queue_core.selection.by_value import in_flight_by_value, key_of
    from queue_core.selection.scan import SliceScan

    scan = SliceScan(connection, [queue], storage, now)
    counts = in_flight_by_value(scan, queue.id, {limit.column}).get(limit.column, {})
    most = sorted(counts.items(), key=lambda item: (-item[1], key_of(item[0])))[:MOST_VALUES]
    return {key_of(value): count for value, count in most}


def _is_full(limit: Limit, spent_until: int, now: int) -> bool:
    return limit.per_second is None or buckets.is_full(limit, spent_until, now)


def _bucket(limit: Limit, spent_until: int | None, now: int) -> dict[str, Any]:
    if limit.per_second is None:
        return {}
    tokens = buckets.tokens(limit, spent_until, now)
    next_at = None if tokens else now + buckets.wait(limit, spent_until, now)
    return {"tokens": tokens, "next_at": next_at}


def _subscriptions(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    readers = {info.id: info for info in shown.infos.values() if info.log_of}
    for root in [] if shown.everything else shown.infos:
        of_log = queues.subscriptions_to(connection, root)
        readers |= {info.id: info for info in of_log if not is_snapshot(info.name)}
    found = lags.read(connection, [*readers]) if readers else {}
    roots = {r.id: r.name for r in queues.by_ids(connection, {i.root for i in readers.values()})}
    for info in readers.values():
        lag, settings = found[info.id], info.settings
        yield {
            "queue": info.name,
            "log_of": roots[info.root],
            "state": "detached" if info.detached_at else "reading",
            "selector": settings.selector,
            "behind": lag.messages,
            "behind_seconds": lag.seconds,
            "behind_bytes": lag.bytes,
            "late": settings.late,
            "when_late": settings.when_late,
            "headroom": None if info.detached_at else lag.headroom(settings.budget),
            "detached_at": info.detached_at or None,
        }


def _logs(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    logged = [info.id for info in shown.infos.values() if info.settings.log is not None]
    for row in logs.extents(connection, logged):
        yield row | {"queue": shown.infos[row["queue_id"]].name}


def _retained(connection: Connection, shown: Shown) -> Iterable[Mapping[str, Any]]:
    logged = [info for info in shown.infos.values() if info.settings.log is not None]
    readers = {info.id: queues.subscriptions_to(connection, info.id) for info in logged}
    sizes = lags.logged(connection, [each.id for of_log in readers.values() for each in of_log])
    for info in logged:
        size = logs.kept(connection, info.id, info.settings.log_limits)
        yield {"queue": info.name, "kept_by": "log", "bytes": size}
        for reader in readers[info.id]:
            if reader.id in sizes:
                yield {
                    "queue": info.name,
                    "kept_by": "snapshot" if is_snapshot(reader.name) else "subscription",
                    "subscription": reader.name,
                    "bytes": sizes[reader.id],
                }


_QUERIES = {
    "queues": _queues,
    "shards": _shards,
    "slices": _slices,
    "consumers": _consumers,
    "traces": _traces,
    "jobs": _jobs,
    "acts": _acts,
    "breakers": _breakers,
    "samples": _samples,
    "limits": _limits,
    "subscriptions": _subscriptions,
    "logs": _logs,
    "retained": _retained,
}
