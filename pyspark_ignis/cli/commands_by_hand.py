"""Commands by which a person handles queues and messages: pause, resume."""

from __future__ import annotations

import typer

from pyspark_ignis.cli.app import Name, app
from pyspark_ignis.cli.invocation import Invocation

_BY_HAND = "By hand"


@app.command(rich_help_panel=_BY_HAND)
def pause(ctx: typer.Context, queue: Name) -> None:
    """
    Pause a queue for every process: no messages are fired until `ignis resume`.

    Loads, settlements and side tasks continue.
    """
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        found.pause()
    call.answer(f"queue {queue} is paused", paused=queue)


@app.command(rich_help_panel=_BY_HAND)
def resume(ctx: typer.Context, queue: Name) -> None:
    """Let a queue fire messages again after `ignis pause`."""
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        found.resume()
        stays = found.info.is_paused
    text = f"queue {queue} is resumed"
    if stays:
        text += f", but its concurrency is 0: run ignis set {queue} concurrency=8"
    call.answer(text, resumed=queue, paused=stays)
