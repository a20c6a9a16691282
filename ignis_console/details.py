"""What the pages of one queue read: its shards, its consumers, its history, and its sideline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa
from sqlalchemy import Connection

from ignis_console import redrives
from ignis_console.redrives import RECENT_MICROS, Redrive
from queue_core.catalog import dialect, queues
from queue_core.catalog.records import acts
from queue_core.store import Store
from queue_core.values.json_text import HIDDEN
from queue_core.values.model import QueueInfo
from queue_core.watching import present, space, views
from queue_core.watching.blocked import look
from queue_core.watching.causes import Blocked, Holder
from queue_core.watching.present import FigureSample, QueueFigures
from queue_core.watching.space import Space
from queue_core.watching.wording import moment

#: The most acts that the charts mark, the latest ones.
MARKS = 50
#: Of a queue with more waiting messages, only `ignis why` looks for the rule that holds them back.
MOST_LOOKED_AT = 100_000
#: The times that the charts can show: seconds of each sample, and seconds in all.
SPANS = {"hour": (10, 3600), "day": (60, 86_400), "month": (3600, 30 * 86_400)}
#: A row of the view ``subscriptions``, with the bytes that the log ``keeps`` for it.
Reader: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a queue."""

    messages: int
    #: Uncompressed.
    bytes: int
    #: When the first of its messages came; null: it has none.
    oldest_at: datetime | None
    #: The bytes that its setting keeps.
    by_setting: int
    #: The bytes that it keeps for snapshots, by their names.
    by_snapshots: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard of main, and what of it is in the sideline."""

    shard: int
    waiting: int
    in_flight: int
    sidelined: int
    loaded: int
    deleted: int


@dataclass(frozen=True, slots=True)
class ActMark:
    """An act of a person on the queue, which the charts mark."""

    #: In seconds since 1970.
    at: float
    verb: str
    who: str


@dataclass(frozen=True, slots=True)
class Details:
    """What only the page of one queue shows."""

    #: The moment of all figures of the page, in seconds since 1970, by the catalog's clock.
    now: float
    columns: tuple[tuple[str, str], ...]
    key: str | None
    created_at: datetime | None
    deactivated_at: datetime | None
    #: The disks of catalog and storage, unless they are on servers.
    spaces: tuple[Space, ...] = field(metadata=HIDDEN)
    settings: dict[str, Any]
    shards: tuple[ShardRow, ...]
    #: The most waiting messages of a shard, as a multiple of the mean; None: none waits.
    skew: float | None
    holders: tuple[Holder, ...]
    span: str
    samples: tuple[FigureSample, ...]
    acts: tuple[ActMark, ...]
    #: Those that go on, or ended within the last hour.
    redrives: tuple[Redrive, ...]
    #: The queue's log and its readers. A subscription has no log, and only its own row.
    log: Log | None
    readers: tuple[Reader, ...]
    figures: QueueFigures = field(metadata=HIDDEN)
    #: The rules that hold back each message that waits.
    blocked: tuple[Blocked, ...] = field(default=(), metadata=HIDDEN)


def read_queue(store: Store, name: str, span: str) -> Details:
    """
    Read a queue in one short transaction; raises `NoSuchQueue`.

    If nothing was fired lately, more transactions look for the rule that holds messages back.
    """
    with store.catalog.read() as connection:
        now = dialect.read_clock(connection)
        info = queues.find(connection, name)
        figures = present.read_queue_within(connection, now, info.id)
        rows = views.read(connection, "shards", name, store.storage.uri).to_pylist()
        each, seconds = SPANS[span]
        begin = now - seconds * 1_000_000
        history = present.read_samples(connection, info.id, each, begin)
        marked = acts.rows(connection, [name], MARKS)
        own = redrives.of_queue(connection, name, now - RECENT_MICROS)
        log, reading = _log_of(connection, info)
    rules: list[Blocked] = []
    if 0 < (figures.waiting or 0) <= MOST_LOOKED_AT and not figures.fired_per_s:
        rules = look(store.catalog, store.storage.uri, info)
    aside = {row["shard"]: row["waiting"] for row in rows if row["magazine"] == "sideline"}
    shards = tuple(
        ShardRow(
            sidelined=aside.get(row["shard"], 0),
            **{name: row[name] for name in ("shard", "waiting", "in_flight", "loaded", "deleted")},
        )
        for row in rows
        if row["magazine"] == "main"
    )
    waiting = sum(row.waiting for row in shards)
    return Details(
        now=now / 1e6,
        columns=tuple((each.name, str(each.type)) for each in info.schema),
        key=info.key,
        created_at=moment(info.created_at),
        deactivated_at=moment(info.deactivated_at),
        spaces=space.read(store.catalog, store.storage),
        settings=dict(json.loads(info.settings.to_json())),
        shards=shards,
        skew=max(row.waiting for row in shards) * len(shards) / waiting if waiting else None,
        holders=figures.causes.holders,
        span=span,
        samples=history,
        acts=tuple(ActMark(row.begun_at / 1e6, row.verb, row.who) for row in marked),
        redrives=own,
        log=log,
        readers=reading,
        figures=figures,
        blocked=tuple(rules),
    )


def read_sideline(store: Store, queue: str) -> tuple[int, pa.Table, pa.Table]:
    """Return the catalog's time, and the views `sideline` and `traces`; raises `NoSuchQueue`."""
    with store.catalog.read() as connection:
        now, uri = dialect.read_clock(connection), store.storage.uri
        rows, traces = (views.read(connection, name, queue, uri) for name in ("sideline", "traces"))
        return now, rows, traces


def _log_of(connection: Connection, queue: QueueInfo) -> tuple[Log | None, tuple[Reader, ...]]:
    """Return the log of a queue and its readers; of a subscription, no log and its own row."""

    def rows(view: str) -> list[dict[str, Any]]:
        return list(views.read(connection, view, queue, "").to_pylist())

    readers = rows("subscriptions")
    if queue.settings.log is None:
        return None, tuple(readers)
    kept = {(row["kept_by"], row["subscription"]): row["bytes"] for row in rows("retained")}
    shards = rows("logs")
    log = Log(
        sum(row["messages"] for row in shards),
        sum(row["bytes"] for row in shards),
        min((row["oldest_at"] for row in shards if row["oldest_at"]), default=None),
        kept.pop(("log", None)),
        {name: size for (by, name), size in kept.items() if by == "snapshot"},
    )
    return log, tuple(
        row | {"keeps": kept.get(("subscription", row["queue"]), 0)} for row in readers
    )
