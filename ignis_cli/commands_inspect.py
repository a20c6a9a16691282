"""Commands that inspect a store and change nothing."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import Annotated

import pyarrow as pa
import typer
from rich.live import Live

from ignis_cli import top
from ignis_cli.app import AnyName, Last, command, duration
from ignis_cli.display import console, grid, in_json, put, show, show_json
from queue_core import Queue, Store
from queue_core.values.model import BY_SHARD

_INSPECT = "Inspect"


@command(_INSPECT)
def queues(store: Store) -> None:
    """List the queues and count their messages."""
    shown = ["queue", "shards", "key", "waiting", "oldest_age", "in_flight", "sidelined", "damaged"]
    rows = store.view("queues")
    # Most queues are in use.
    states = ("paused_at", "deactivated_at")
    shown += [name for name in states if rows.column(name).null_count < rows.num_rows]
    show(rows, shown)


@command(_INSPECT)
def describe(queue: Queue) -> None:
    """Show a queue's columns, settings and counters."""
    columns = [
        {"column": each.name, "type": str(each.type), "required": not each.nullable}
        for each in queue.schema
    ]
    facts = queue.store.view("queues", queue.name).to_pylist()[0]
    counters = queue.metadata()
    settings = json.loads(facts.pop("settings"))
    if in_json.get():
        show_json(
            facts | {"columns": columns, "settings": settings, "counters": counters.to_pylist()}
        )
        return
    del facts["columns"]
    values = [str(value) for value in [*facts.values(), *settings.values()]]
    put(grid(pa.table({"name": [*facts, *settings], "value": values})))
    put(grid(pa.Table.from_pylist(columns), title="columns"))
    put(grid(counters.drop_columns("queue"), title="shards"))


@command(_INSPECT)
def peek(
    queue: Queue,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Show at most this many messages.")
    ] = 10,
    magazine: Annotated[str, typer.Option(help="The magazine: main or sideline.")] = "main",
    selector: Annotated[
        str | None,
        typer.Option(help="SQL condition on the messages, such as 'amount > 10'."),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(help="Order in which messages are chosen, such as 'priority DESC'."),
    ] = None,
    order: Annotated[
        str,
        typer.Option(
            help="Order without --order-by: shard, or global for the time of loading over all "
            "shards, which takes longer."
        ),
    ] = BY_SHARD,
) -> None:
    """Show the messages that would be fired next, without taking them."""
    messages = queue.peek(
        count, selector=selector, order_by=order_by, order=order, magazine=magazine
    )
    hidden = ("_queue", "_fired_at")
    show(messages, [name for name in messages.column_names if name not in hidden])


@command(_INSPECT)
def slices(store: Store, queue: AnyName = None, last: Last = 1000) -> None:
    """Show the slices: where messages are stored, and which consumer holds them."""
    show(store.view("slices", queue), last=last)


@command(_INSPECT)
def shards(store: Store, queue: AnyName = None) -> None:
    """Show the pointers and counters of each shard."""
    show(store.view("shards", queue))


@command(_INSPECT)
def consumers(store: Store) -> None:
    """Show the consumers and the messages that they hold."""
    show(store.view("consumers"))


@command(_INSPECT)
def limits(store: Store, queue: AnyName = None) -> None:
    """Show the limits of queues, and how many messages they allow now."""
    show(store.view("limits", queue))


@command(_INSPECT)
def failures(store: Store, queue: AnyName = None, last: Last = 100) -> None:
    """Show why messages were sidelined."""
    show(store.view("failures", queue), last=last)


@command(_INSPECT)
def retries(store: Store, queue: AnyName = None, last: Last = 100) -> None:
    """Show the messages of the sideline: why they failed, and when they are tried again."""
    show(store.view("sideline", queue), last=last)


@command(_INSPECT)
def reports(store: Store, queue: AnyName = None, last: Last = 100) -> None:
    """Show how many messages each run of a side task moved."""
    show(store.view("reports", queue), last=last)


@command(_INSPECT, "top")
def watch(
    store: Store,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Show the figures once, with the rates of one interval, and exit."
        ),
    ] = False,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Time between two updates, such as 1s.")
    ] = "1s",
) -> None:
    """Watch the queues live: messages and rates per second."""
    screen = console()
    with suppress(KeyboardInterrupt):
        frames = top.frames(store, duration("interval", interval))
        if once or in_json.get() or not screen.is_terminal:
            for frame in islice(frames, 1 if once else 0, 2 if once else None):
                show(frame)
            return
        with Live(console=screen, screen=True) as live:
            for frame in frames:
                live.update(grid(frame, title=f"{store!r}"))
