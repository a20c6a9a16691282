"""Commands by which a person handles queues and messages: pause, resume, get, delete, and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ignis_cli import row_files
from ignis_cli.app import Name, app
from ignis_cli.counting import counting
from ignis_cli.display import OutputLost, complain, counted, flush, show
from ignis_cli.interrupts import between_transactions
from ignis_cli.invocation import REFUSED, Invocation
from ignis_cli.questions import Yes, ask
from queue_core import Chosen, Firing, IgnisError, Queue
from queue_core.errors import BadOption

_BY_HAND = "By hand"

MessageIds = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="ID", help="Id of a message, as _message_id. Repeatable."),
]
Where = Annotated[
    str | None,
    typer.Option(metavar="SELECTOR", help="SQL condition on the messages, such as 'amount > 10'."),
]
Every = Annotated[bool, typer.Option("--all", help="All messages of the queue.")]
Within = Annotated[
    str | None,
    typer.Option(help="Only messages in this magazine: main or sideline. By default, both."),
]


@app.command(rich_help_panel=_BY_HAND)
def pause(ctx: typer.Context, queue: Name) -> None:
    """
    Pause a queue for every process: no messages are fired until `ignis resume`.

    Loads, settlements and side tasks continue.
    """
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        found.pause()
    call.answer(f"queue {queue} is paused", queue=queue, paused=True)


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
    call.answer(text, queue=queue, paused=stays)


@app.command(rich_help_panel=_BY_HAND)
def get(
    ctx: typer.Context,
    queue: Name,
    ids: MessageIds = None,
    where: Where = None,
    every: Every = False,
    magazine: Within = None,
) -> None:
    """Show chosen messages, waiting or in flight, without taking them."""
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        messages = _chosen(found, ids, where, every, magazine).rows()
    shown = [name for name in messages.column_names if name != "_queue"]
    show(messages, as_json=call.as_json, columns=shown)


@app.command(rich_help_panel=_BY_HAND)
def fire(
    ctx: typer.Context,
    queue: Name,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Take at most this many messages.")
    ] = 1,
    where: Where = None,
    magazine: Annotated[str, typer.Option(help="The magazine: main or sideline.")] = "main",
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove the messages when they have been printed.")
    ] = False,
) -> None:
    """
    Take the next messages, and show them.

    They stay in flight, so that no consumer gets them: `ignis reload` puts them back, and with
    --delete, they are removed. If the command is killed, a sweep sidelines them.
    """
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        with between_transactions() as interrupts:
            try:
                firing = found.fire(count, selector=where, magazine=magazine)
            except KeyboardInterrupt:
                complain(f"fire was interrupted; if messages are in flight, {_way_back(found)}")
                raise
        with _not_forgotten(found, firing):
            interrupts.check()
            names = [name for name in firing.messages.column_names if name != "_queue"]
            show(firing.messages, as_json=call.as_json, columns=names)
            # Whoever reads them has them, before they are removed.
            flush()
            if delete:
                found.delete(firing)
        if not len(firing):
            if found.info.is_paused:
                complain(f"queue {queue} is paused: ignis resume {queue}")
        elif not delete:
            complain(_in_flight(found, len(firing)))


@app.command(rich_help_panel=_BY_HAND)
def delete(
    ctx: typer.Context,
    queue: Name,
    ids: MessageIds = None,
    where: Where = None,
    every: Every = False,
    magazine: Within = None,
    yes: Yes = False,
) -> None:
    """
    Remove chosen messages that wait, for good.

    Messages in flight stay: reload them first. The exit code is 1 if you answer no.
    """
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        chosen = _chosen(found, ids, where, every, magazine)
        done = _do(call, chosen, "delete", Chosen.delete, f"delete {{}} of {queue} for good", yes)
    call.answer(f"{counted(done)} of {queue} deleted", deleted=done)


@app.command(rich_help_panel=_BY_HAND)
def sideline(
    ctx: typer.Context,
    queue: Name,
    ids: MessageIds = None,
    where: Where = None,
    every: Every = False,
    reason: Annotated[
        str | None, typer.Option(help="Any text, which the view failures shows.")
    ] = None,
    yes: Yes = False,
) -> None:
    """
    Move chosen messages that wait in main to the sideline.

    They do not count as failed, and no shovel moves them without --force: requeue returns them. The
    exit code is 1 if you answer no.
    """
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        chosen = _chosen(found, ids, where, every, "main")
        done = _do(
            call,
            chosen,
            "sideline",
            lambda these: these.sideline(reason),
            f"sideline {{}} of {queue}",
            yes,
        )
    call.answer(f"{counted(done)} of {queue} sidelined", sidelined=done)


@app.command(rich_help_panel=_BY_HAND)
def requeue(
    ctx: typer.Context,
    queue: Name,
    ids: MessageIds = None,
    where: Where = None,
    every: Every = False,
    yes: Yes = False,
) -> None:
    """
    Move chosen messages from the sideline to the tail of main, dead ones too.

    A bounded queue takes only as many as it has room for. The exit code is 1 if you answer no.
    """
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        chosen = _chosen(found, ids, where, every, "sideline")
        done = _do(call, chosen, "requeue", Chosen.requeue, f"requeue {{}} of {queue}", yes)
    call.answer(f"{counted(done)} of {queue} requeued", requeued=done)


@app.command(rich_help_panel=_BY_HAND)
def reload(
    ctx: typer.Context,
    queue: Name,
    ids: MessageIds = None,
    where: Where = None,
    every: Every = False,
    magazine: Within = None,
    consumer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Take the messages from this consumer, even if it is alive. By default, from "
            "consumers without a sign of life for a minute.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """
    Put chosen messages that are in flight back to their old places.

    Their consumer may have handled them, and they are handled again. The exit code is 1 if you
    answer no.
    """
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        chosen = _chosen(found, ids, where, every, magazine)
        done = _do(
            call,
            chosen,
            "reload",
            lambda these: these.reload(consumer=consumer),
            f"reload {{}} of {queue}",
            yes,
            consumer=consumer,
        )
    call.answer(f"{counted(done)} of {queue} reloaded", reloaded=done)


@app.command(rich_help_panel=_BY_HAND)
def edit(
    ctx: typer.Context,
    queue: Name,
    message: Annotated[int, typer.Argument(metavar="ID", help="Id of a message in the sideline.")],
    set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="A new value: text, base64 for binary columns, or JSON for columns of other "
            "types. Repeatable.",
        ),
    ] = None,
    null: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Set a column to null. Repeatable.")
    ] = None,
) -> None:
    """Change columns of a message in the sideline, and move it to the tail of main."""
    call = Invocation.current(ctx)
    with call.queue(queue) as found:
        values = row_files.values(set or [], found.schema) | dict.fromkeys(null or ())
        found.edit(message, values)
    call.answer(f"message {message} of {queue} is edited, and back in main", edited=message)


@contextmanager
def _not_forgotten(queue: Queue, firing: Firing) -> Iterator[None]:
    """Say which fired messages are still in flight if the block fails or is interrupted."""
    try:
        yield
    except (IgnisError, OutputLost, KeyboardInterrupt) as error:
        try:
            # The removal may have been complete.
            left = queue.choose(firing.ids).count("reload", consumer=queue.store.consumer().name)
        except IgnisError:
            left = len(firing)
        if not left:
            raise
        complain(f"{str(error) or 'fire was interrupted'}; {_in_flight(queue, left)}")
        if isinstance(error, KeyboardInterrupt):
            raise
        raise typer.Exit(REFUSED) from error


def _in_flight(queue: Queue, messages: int) -> str:
    return f"{counted(messages)} of {queue.info.name} in flight; {_way_back(queue)}"


def _way_back(queue: Queue) -> str:
    name, holder = queue.info.name, queue.store.consumer().name
    return f"put them back with: ignis reload {name} --all --consumer {holder}"


def _chosen(
    queue: Queue,
    ids: list[int] | None,
    where: str | None,
    every: bool,
    magazine: str | None,
) -> Chosen:
    if every == bool(ids or where):
        raise BadOption("choose the messages with --id, with --where, with both, or with --all")
    return queue.choose("all" if every else ids or None, where, magazine)


def _do(
    call: Invocation,
    chosen: Chosen,
    act: str,
    run: Callable[[Chosen], int],
    question: str,
    yes: bool,
    consumer: str | None = None,
) -> int:
    """
    Run an act after a question with the number of messages; end with 1 if the answer is no.

    It concerns the messages that were counted for the question, and no others.
    """
    if yes:
        with counting(call, act, len(chosen.ids)):
            return run(chosen)
    counted_ones, there = chosen.only(act, consumer=consumer), chosen.count()
    concerned = len(counted_ones.ids)
    if not concerned:
        return 0
    left = f", and leave {counted(there - concerned)} alone" if there > concerned else ""
    ask(call, question.format(counted(concerned)) + left)
    with counting(call, act, concerned):
        return run(counted_ones)
