"""Commands that look at a store and change nothing."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import Annotated

import pyarrow as pa
import typer
from rich.live import Live

from pyspark_ignis.cli import top
from pyspark_ignis.cli.app import AnyName, Last, Name, app, duration
from pyspark_ignis.cli.display import console, grid, show, show_json
from pyspark_ignis.cli.invocation import Call

_LOOK = "Look"


@app.command(rich_help_panel=_LOOK)
def queues(ctx: typer.Context) -> None:
    """List the queues, and how many messages wait in each."""
    shown = ["queue", "shards", "key", "waiting", "in_flight", "sidelined", "damaged", "bytes"]
    Call.current(ctx).show_view("queues", columns=shown)


@app.command(rich_help_panel=_LOOK)
def describe(ctx: typer.Context, queue: Name) -> None:
    """Show a queue's columns, settings and counters."""
    call = Call.current(ctx)
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
    told = {"fact": [*facts, *settings], "value": map(str, [*facts.values(), *settings.values()])}
    out = console()
    out.print(grid(pa.table({name: list(values) for name, values in told.items()})))
    out.print(grid(pa.Table.from_pylist(columns), title="columns"))
    out.print(grid(counters.drop_columns("queue"), title="shards"))


@app.command(rich_help_panel=_LOOK)
def peek(
    ctx: typer.Context,
    queue: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="So many at most.")] = 10,
    magazine: Annotated[str, typer.Option(help="main or sideline.")] = "main",
    selector: Annotated[
        str | None, typer.Option(help="A SQL condition, such as 'amount > 10'.")
    ] = None,
    order_by: Annotated[str | None, typer.Option(help="Such as 'priority DESC'.")] = None,
) -> None:
    """Show the messages that would be fired next; take none."""
    call = Call.current(ctx)
    with call.queue(queue) as found:
        messages = found.peek(count, selector=selector, order_by=order_by, magazine=magazine)
    hidden = ("_queue", "_fired_at")
    shown = [name for name in messages.column_names if name not in hidden]
    show(messages, as_json=call.as_json, columns=shown)


@app.command(rich_help_panel=_LOOK)
def slices(ctx: typer.Context, queue: AnyName = None, last: Last = 1000) -> None:
    """Show where messages are, and who holds them."""
    Call.current(ctx).show_view("slices", queue, last=last)


@app.command(rich_help_panel=_LOOK)
def shards(ctx: typer.Context, queue: AnyName = None) -> None:
    """Show pointers and counters of each shard."""
    Call.current(ctx).show_view("shards", queue)


@app.command(rich_help_panel=_LOOK)
def consumers(ctx: typer.Context) -> None:
    """Show who has fired from the store, and what they hold."""
    Call.current(ctx).show_view("consumers")


@app.command(rich_help_panel=_LOOK)
def failures(ctx: typer.Context, queue: AnyName = None, last: Last = 100) -> None:
    """Show why messages were sidelined."""
    Call.current(ctx).show_view("failures", queue, last=last)


@app.command(rich_help_panel=_LOOK)
def reports(ctx: typer.Context, queue: AnyName = None, last: Last = 100) -> None:
    """Show what side tasks have moved."""
    Call.current(ctx).show_view("reports", queue, last=last)


@app.command(name="top", rich_help_panel=_LOOK)
def watch(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    interval: Annotated[str, typer.Option(metavar="TIME", help="How often to look.")] = "1s",
) -> None:
    """Watch the queues live: what is there, and what happens each second."""
    call = Call.current(ctx)
    screen = console()
    with call.store() as store, suppress(KeyboardInterrupt):
        frames = top.frames(store, duration("interval", interval))
        if once or call.as_json or not screen.is_terminal:
            for frame in islice(frames, 1 if once else None):
                show(frame, as_json=call.as_json)
            return
        with Live(console=screen, screen=True) as live:
            for frame in frames:
                live.update(grid(frame, title=f"{store!r}"))
