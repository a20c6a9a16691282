"""Commands that inspect a store and change nothing: views, messages, samples and metrics."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import groupby, islice
from operator import itemgetter, sub
from textwrap import indent
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import typer

from ignis_cli import logs
from ignis_cli.app import AnyName, Count, Host, Last, Port, command, duration
from ignis_cli.display import complain, console, flush, in_json, put, say, show_json
from ignis_cli.invocation import BROKEN, current
from ignis_cli.logs import LogFormat
from ignis_cli.tables import grid, say_what_lacks, show, show_facts, show_table
from queue_core.catalog.database import Catalog
from queue_core.catalog.queues import find_all
from queue_core.catalog.records import figures
from queue_core.errors import BadOption
from queue_core.pool.signals import asked_to_end
from queue_core.support.import_paths import missing
from queue_core.values.model import BY_SHARD
from queue_core.values.names import nearest
from queue_core.values.views import VIEWS
from queue_core.watching import space
from queue_core.watching.views import read_samples
from queue_core.watching.wording import counted, size

if TYPE_CHECKING:
    from queue_core import Queue, Store

_INSPECT = "Inspect"

#: Columns of `ignis queues`, the most important ones first, and the further ones of ``--wide``.
_SHOWN = ["queue", "waiting", "oldest_age", "in_flight", "dead", "state"]
_SHOWN += ["sidelined", "retrying", "damaged"]
_SHOWN += ["waiting_p50", "waiting_p99", "handling_p50", "handling_p99"]
_WIDE = ["bytes", "shards", "key", "created_at", "paused_at", "deactivated_at"]
#: The time that one sample stands for.
Each = StrEnum("Each", {"ten_seconds": "10s", "minute": "1m", "hour": "1h"})
#: Characters of a line of bars, one for each sample, and the columns that have one.
_WIDTH = 40
_LINES = ("waiting", "oldest_age")
_BARS = "▁▂▃▄▅▆▇█"
#: What `ignis top` counts.
_COUNTS = ("waiting", "in_flight", "sidelined", "damaged")
#: Counters of main since the queue was created, by the name of their rate.
_RATES = {f"{counter}_per_s": f"all_{counter}" for counter in figures.COUNTED}
_SCHEMA = pa.schema(
    [
        ("queue", pa.string()),
        *((name, pa.int64()) for name in _COUNTS),
        *((name, pa.float64()) for name in _RATES),
    ]
)


@command(_INSPECT)
def queues(
    store: Store, *, match: str | None = None, sort: str = "queue", wide: bool = False
) -> None:
    """
    List the queues and count their messages.

    A narrow terminal shows the first columns. The exit code is 1 if no queue matches.

    Args:
        match (PATTERN): Only queues whose name matches, such as 'acme.*'.
        sort (COLUMN): Order by this column, such as waiting; numbers begin with the highest.
        wide: Also show bytes, shards, key and times, and the free space of catalog and storage.
    """
    rows = store.view("queues")
    if sort not in rows.column_names:
        use = ", ".join(rows.column_names)
        raise BadOption(f"--sort {sort}{nearest(sort, rows.column_names)}; use one of {use}")
    falls = not pa.types.is_string(rows.schema.field(sort).type)
    # By Python, since Arrow's functions take a while to import. Nulls come last.
    found = sorted(rows.to_pylist(), key=itemgetter("queue"))
    known = [row for row in found if row[sort] is not None]
    known.sort(key=itemgetter(sort), reverse=falls)
    found = [*known, *(row for row in found if row[sort] is None)]
    found = [row for row in found if match is None or fnmatchcase(row["queue"], match)]
    if in_json.get():
        with store.catalog.read() as connection:
            schemas = {info.name: info.schema for info in find_all(connection)}
        for row in found:
            show_json(row | _objects(row, schemas.get(row["queue"], pa.schema([]))))
    else:
        show(pa.Table.from_pylist(found, rows.schema), _SHOWN + _WIDE if wide else _SHOWN)
        disks = space.read(store.catalog, store.storage) if wide else ()
        for disk, text in free_space(disks).items():
            (say if sys.stdout.isatty() else complain)(f"{disk}: {text}")
    if match is not None and not found:
        raise typer.Exit(BROKEN)


def free_space(disks: Sequence[space.Space]) -> dict[str, str]:
    """Return the free space of disks, in words."""
    return {f"disk of {each.of}": f"{size(each.free)} of {size(each.size)} free" for each in disks}


def _objects(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Return the columns and settings of a row of the view `queues`, which are texts there."""
    columns = [
        {"column": each.name, "type": str(each.type), "required": not each.nullable}
        for each in schema
    ]
    return {"columns": columns, "settings": json.loads(row["settings"])}


@command(_INSPECT)
def describe(queue: Queue) -> None:
    """Show a queue's columns, settings and counters."""
    (row,) = queue.store.view("queues", queue.name).to_pylist()
    facts = row | _objects(row, queue.schema)
    counters = queue.metadata()
    disks = space.read(queue.store.catalog, queue.store.storage)
    if in_json.get():
        lists = {"disks": [each._asdict() for each in disks], "counters": counters.to_pylist()}
        show_json(facts | lists)
        return
    columns, settings = facts.pop("columns"), facts.pop("settings")
    # A pipe gets the free bytes.
    plain = {f"disk of {each.of}": each.free for each in disks}
    facts |= free_space(disks) if sys.stdout.isatty() else plain
    show_facts(facts | settings)
    for title, rows in (
        ("columns", pa.Table.from_pylist(columns)),
        ("shards", counters.drop_columns("queue")),
    ):
        put("\n")
        show_table(rows, title)


@command(_INSPECT)
def peek(
    queue: Queue,
    *,
    count: Count = 10,
    magazine: str = "main",
    selector: str | None = None,
    order_by: str | None = None,
    order: str = BY_SHARD,
) -> None:
    """
    Show the messages that would be fired next, without taking them.

    Args:
        count: Show at most this many messages.
        magazine: The magazine: main or sideline.
        selector: SQL condition on the messages, such as 'amount > 10'.
        order_by: Order in which messages are chosen, such as 'priority DESC'.
        order: Order without --order-by: shard, or global for the time of loading over all shards,
            which takes longer.
    """
    messages = queue.peek(
        count, selector=selector, order_by=order_by, order=order, magazine=magazine
    )
    show(messages, without=("_queue", "_fired_at"))
    if messages.num_rows < count:
        say_what_lacks(queue, messages.num_rows)


@command(_INSPECT)
def message(queue: Queue, message: int) -> None:
    """
    Show one message: its state, magazine, holder, failures and life.

    The exit code is 1 if the queue has no such message now.

    Args:
        message (ID): Id of the message, as _message_id.
    """
    # Not at the top: only this command needs it.
    from ignis_console.messages import life

    found = life(queue.store, queue.name, message)
    place = found.place
    if in_json.get():
        show_json({"queue": queue.name, **{each: getattr(found, each) for each in found.__slots__}})
    else:
        state = f"{place.state} in {place.magazine}" if place else "gone: deleted, expired or moved"
        facts: dict[str, Any] = {"message": message, "state": state}
        for each in place.__slots__ if place else ():
            facts.setdefault(each, getattr(place, each))
        named = facts | dict(found.payload or {})
        show_facts(named, "_id")
        events = [
            {"at": each.at, "event": each.text, "consumer": each.consumer}
            | {name: getattr(each.failure, name, None) for name in ("kind", "reason")}
            for each in found.events
        ]
        if events:
            put("\n")
            show_table(pa.Table.from_pylist(events))
    if place is None:
        raise typer.Exit(BROKEN)


#: The most important columns of views that have further ones before them.
FIRST = {
    "acts": "begun_at who verb queue messages chosen selector by error",
    "consumers": "consumer in_flight heartbeat_at host pid interested for_restart",
    "failures": "queue message_id kind reason failed_at",
    "shards": "queue magazine shard waiting in_flight loaded fired",
    "sideline": "queue message_id dead kind reason due_at attempts",
    "slices": "queue consumer fired_at messages state",
}
#: Columns of times, of views that do not have their latest rows at their end.
_TIMES = {"failures": "failed_at", "sideline": "sidelined_at", "slices": "moved_at"}


def _show_view(view: str, rows: pa.Table, last: int | None = None) -> None:
    objects = {"limits": ["value"], "acts": ["chosen"]}.get(view, [])
    columns = [*FIRST.get(view, "").split(), *rows.column_names]
    if view in _TIMES and last and rows.num_rows > last:
        rows = rows.sort_by(_TIMES[view])
    show(rows, [*dict.fromkeys(columns)], last=last, without=("fingerprint",), objects=objects)


def _view(name: str, view: str, about: str, most: int | None = None) -> None:
    """
    Add a command that shows a view; *most*: its latest rows by default.

    A view without a column `queue` is of the store, and the other views are of one queue or of all.
    """

    def whole(store: Store) -> None:
        _show_view(view, store.view(view))

    def of_queue(store: Store, queue: AnyName = None) -> None:
        _show_view(view, store.view(view, queue))

    def latest(store: Store, queue: AnyName = None, *, last: Last = most or 0) -> None:
        _show_view(view, store.view(view, queue), last)

    plain = of_queue if "queue" in VIEWS[view].names else whole
    function: Callable[..., None] = latest if most else plain
    function.__doc__ = about
    command(_INSPECT, name)(function)


_SLICES = "Show the slices: where messages are stored, and which consumer holds them."
_RETRIES = "Show the messages of the sideline: why they failed, and when they are tried again."
_view("slices", "slices", _SLICES, 1000)
_view("shards", "shards", "Show the pointers and counters of each shard.")
_view("consumers", "consumers", "Show the consumers and the messages that they hold.")
_view("limits", "limits", "Show the limits of queues, and how many messages they allow now.")
_view("subscriptions", "subscriptions", "Show how far subscriptions are behind, and may be.")
_view("retained", "retained", "Show how much of the logs of queues is kept, and for whom.")
_view("retries", "sideline", _RETRIES, 100)
_view("reports", "reports", "Show how many messages each run of a side task moved.", 100)
_view("log", "acts", "Show what persons did by hand, and who they are.", 100)
_view("breakers", "breakers", "List the circuit breakers that have opened, and their states.")


@command(_INSPECT)
def failures(store: Store, queue: AnyName = None, *, last: Last = 100, trace: bool = False) -> None:
    """
    Show why messages were sidelined.

    Args:
        trace: Show instead the groups of failures that are alike, the largest first: how many
            failures each has, and the end of the trace of one of them.
    """
    rows = store.view("failures", queue)
    if not trace:
        _show_view("failures", rows, last)
        return
    groups = [*_alike(rows, store.view("traces", queue))]
    for each in groups[:last]:
        if in_json.get():
            show_json(each)
            continue
        say(f"{each['queue']}: {each['kind']}: {each['fingerprint'] or 'no reason'}")
        latest = f"the latest at {each['last_at']:%Y-%m-%d %H:%M:%S}"
        say(f"  {counted(each['failures'], 'failure', 'failures')}, {latest}")
        if each["trace"] is not None:
            say(f"  message {each['message_id']}:")
            say(indent(each["trace"], "    "))
    if len(groups) > last:
        complain(f"{len(groups) - last:,} smaller groups are not shown; show more with --last")


def _alike(failures: pa.Table, traces: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the groups of failures that are alike, the largest first, with their traces."""
    keys = ["queue", "kind", "fingerprint"]
    known = {tuple(row[key] for key in keys): row for row in traces.to_pylist()}
    counts = [("message_id", "count"), ("failed_at", "min"), ("failed_at", "max")]
    groups = failures.group_by(keys).aggregate(counts)
    groups = groups.rename_columns([*keys, "failures", "first_at", "last_at"])
    order = [("failures", "descending"), *((key, "ascending") for key in keys)]
    for row in groups.sort_by(order).to_pylist():
        kept = known.get(tuple(row[key] for key in keys), {})
        yield row | {name: kept.get(name) for name in ("message_id", "trace")}


@command(_INSPECT, "top")
def watch(store: Store, *, once: bool = False, interval: str = "1s") -> None:
    """
    Watch the queues live: messages and rates per second.

    Args:
        once: Show the figures once, with the rates of one interval, and exit.
        interval (TIME): Time between two updates, such as 1s.
    """
    from rich.live import Live

    screen = console()
    with suppress(KeyboardInterrupt):
        looks = frames(store.catalog, duration("interval", interval))
        if once or in_json.get() or not screen.is_terminal:
            for frame in islice(looks, 1 if once else 0, 2 if once else None):
                show(frame)
                flush()
            return
        with Live(console=screen, screen=True) as live:
            for frame in looks:
                live.update(grid(frame, screen.width, f"{store!r}")[0])


def frames(catalog: Catalog, interval: float) -> Iterator[pa.Table]:
    """
    Yield a frame at once, and then one every *interval* seconds, without end.

    It has one row per queue: its messages, and the rates per second since the frame before. Rates
    are null in the first frame, and for a queue that the frame before does not have.
    """
    # By id, since another queue may have the name of a dropped one.
    began, former = 0.0, dict[int, Any]()
    while True:
        with catalog.read() as connection:
            queues = sorted(figures.read(connection), key=lambda row: str(row.queue))
        at = time.monotonic()
        rows = []
        for queue in queues:
            row = {"queue": queue.queue} | {each: getattr(queue, each) for each in _COUNTS}
            for rate, counter in _RATES.items():
                before = former.get(queue.queue_id)
                counts = [getattr(each, counter, None) for each in (queue, before)]
                if None not in counts:
                    row[rate] = round(sub(*counts) / (at - began), 1)
            rows.append(row)
        yield pa.Table.from_pylist(rows, _SCHEMA)
        began, former = at, {queue.queue_id: queue for queue in queues}
        time.sleep(interval)


@command(_INSPECT)
def samples(store: Store, queue: AnyName = None, *, each: Each = Each.ten_seconds) -> None:
    """
    Show the figures of queues over time: their latest sample, and lines of earlier ones.

    The side task `sample` writes them while a query, a pool, a manager or `Store.side_tasks` runs
    side tasks. With --json, all samples are printed.

    Args:
        each: The time between two samples: 10s for the last hour, 1m for the last day, or 1h for
            the last 30 days.
    """
    rows = read_samples(store.catalog, queue, int(duration("each", each)))
    show(rows if in_json.get() else with_lines(rows))


def with_lines(rows: pa.Table) -> pa.Table:
    """Return the latest sample of each queue, with a line for each of some columns."""
    latest: list[dict[str, Any]] = []
    for _, found in groupby(rows.to_pylist(), key=lambda row: row["queue"]):
        history = list(found)
        row = {k: round(v, 1) if isinstance(v, float) else v for k, v in history[-1].items()}
        for name in _LINES:
            row[f"{name} before"] = bars([each[name] for each in history], _WIDTH)
        latest.append(row)
    schema = rows.schema.remove(rows.schema.get_field_index("seconds"))
    for name in _LINES:
        schema = schema.append(pa.field(f"{name} before", pa.string()))
    return pa.Table.from_pylist(latest, schema)


def bars(values: Sequence[float | None], width: int) -> str:
    """
    Return the newest *width* of some numbers as bars, from 0 to the highest of them.

    A number that is not known is a space, so that it does not look like 0.
    """
    shown = values[-width:]
    highest = max((value for value in shown if value is not None), default=0)

    def bar(value: float) -> str:
        if highest <= 0 or value <= 0:
            return _BARS[0]
        # Whatever is more than nothing is seen to be more than nothing.
        return _BARS[max(1, min(int(value / highest * len(_BARS)), len(_BARS) - 1))]

    return "".join(" " if value is None else bar(value) for value in shown)


@command(_INSPECT)
def metrics(
    *,
    host: Host = "127.0.0.1",
    port: Port = 9464,
    once: bool = False,
    log_format: LogFormat = LogFormat.text,
) -> None:
    """
    Serve the metrics of the store for Prometheus, until SIGTERM or Ctrl-C.

    Each scrape reads the catalog in one transaction. No login is needed. With --once and --json,
    each value is a line with its metric, its labels and its value.

    Args:
        once: Print the metrics and exit.
        log_format: Write the log as lines of text, or of json with fields such as queue.
    """
    try:
        from queue_core.watching import prometheus, readings
    except ModuleNotFoundError as error:
        raise missing("metrics", error, "metrics") from error
    logs.start(log_format)
    with current.get().store() as store:
        if once and in_json.get():
            for reading in readings.flat(store):
                show_json(reading)
            return
        if once:
            put(prometheus.page(store))
            return
        try:
            listening, stop = prometheus.serve(store, host, port)
        except OSError as error:
            raise BadOption(f"--host {host} --port {port}: {error}") from error
        with asked_to_end() as asked:
            logs.announce(f"metrics at http://{host}:{listening}/metrics; Ctrl-C ends")
            asked.wait()
        stop()
