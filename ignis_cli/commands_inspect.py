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
from ignis_cli.app import AnyName, Last, Name, app, duration
from ignis_cli.display import console, grid, put, show, show_json
from ignis_cli.invocation import Invocation
from queue_core.values.model import BY_SHARD

_INSPECT = "Inspect"


@app.command(rich_help_panel=_INSPECT)
def queues(ctx: typer.Context) -> None:
    """List the queues and count their messages."""
    shown = ["queue", "shards", "key", "waiting", "oldest_age", "in_flight", "sidelined", "damaged"]
    call = Invocation.current(ctx)
    with call.store() as store:
        rows = store.view("queues")
    # Most queues are in use.
    states = ("paused_at", "deactivated_at")
    shown += [name for name in states if rows.column(name).null_count < rows.num_rows]
    show(rows, as_json=call.as_json, columns=shown)


@app.command(rich_help_panel=_INSPECT)
def describe(ctx: typer.Context, queue: Name) -> None:
    """Show a queue's columns, settings and counters."""
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        columns = [
            {"column": each.name, "type": str(each.type), "required": not each.nullable}
            for each in found.schema
        ]
        facts = found.store.view("queues", queue).to_pylist()[0]
        counters = found.metadata()
    settings = json.loads(facts.pop("settings"))
    if call.as_json:
        show_json(
            facts | {"columns": columns, "settings": settings, "counters": counters.to_pylist()}
        )
        return
    del facts["columns"]
    values = [str(value) for value in [*facts.values(), *settings.values()]]
    put(grid(pa.table({"name": [*facts, *settings], "value": values})))
    put(grid(pa.Table.from_pylist(columns), title="columns"))
    put(grid(counters.drop_columns("queue"), title="shards"))


@app.command(rich_help_panel=_INSPECT)
def peek(
    ctx: typer.Context,
    queue: Name,
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
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        messages = found.peek(
            count, selector=selector, order_by=order_by, order=order, magazine=magazine
        )
    hidden = ("_queue", "_fired_at")
    shown = [name for name in messages.column_names if name not in hidden]
    show(messages, as_json=call.as_json, columns=shown)


@app.command(rich_help_panel=_INSPECT)
def slices(ctx: typer.Context, queue: AnyName = None, last: Last = 1000) -> None:
    """Show the slices: where messages are stored, and which consumer holds them."""
    Invocation.current(ctx).show_view("slices", queue, last=last)


@app.command(rich_help_panel=_INSPECT)
def shards(ctx: typer.Context, queue: AnyName = None) -> None:
    """Show the pointers and counters of each shard."""
    Invocation.current(ctx).show_view("shards", queue)


@app.command(rich_help_panel=_INSPECT)
def consumers(ctx: typer.Context) -> None:
    """Show the consumers and the messages that they hold."""
    Invocation.current(ctx).show_view("consumers")


@app.command(rich_help_panel=_INSPECT)
def limits(ctx: typer.Context, queue: AnyName = None) -> None:
    """Show the limits of queues, and how many messages they allow now."""
    Invocation.current(ctx).show_view("limits", queue)


@app.command(rich_help_panel=_INSPECT)
def failures(ctx: typer.Context, queue: AnyName = None, last: Last = 100) -> None:
    """Show why messages were sidelined."""
    Invocation.current(ctx).show_view("failures", queue, last=last)


@app.command(rich_help_panel=_INSPECT)
def retries(ctx: typer.Context, queue: AnyName = None, last: Last = 100) -> None:
    """Show the messages of the sideline: why they failed, and when they are tried again."""
    Invocation.current(ctx).show_view("sideline", queue, last=last)


@app.command(rich_help_panel=_INSPECT)
def reports(ctx: typer.Context, queue: AnyName = None, last: Last = 100) -> None:
    """Show how many messages each run of a side task moved."""
    Invocation.current(ctx).show_view("reports", queue, last=last)


@app.command(name="top", rich_help_panel=_INSPECT)
def watch(
    ctx: typer.Context,
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
    call = Invocation.current(ctx)
    screen = console()
    with call.store() as store, suppress(KeyboardInterrupt):
        frames = top.frames(store, duration("interval", interval))
        if once or call.as_json or not screen.is_terminal:
            for frame in islice(frames, 1 if once else 0, 2 if once else None):
                show(frame, as_json=call.as_json)
            return
        with Live(console=screen, screen=True) as live:
            for frame in frames:
                live.update(grid(frame, title=f"{store!r}"))
