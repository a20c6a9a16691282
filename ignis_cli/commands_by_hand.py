"""Commands by which a person handles queues and messages: pause, resume, get, delete, and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import typer

from ignis_cli import row_files
from ignis_cli.app import command
from ignis_cli.counting import counting
from ignis_cli.display import OutputLost, answer, complain, counted, flush, show
from ignis_cli.interrupts import between_transactions
from ignis_cli.invocation import REFUSED
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


@command(_BY_HAND)
def pause(queue: Queue) -> None:
    """
    Pause a queue for every process: no messages are fired until `ignis resume`.

    Loads, settlements and side tasks continue.
    """
    queue.pause()
    answer(f"queue {queue.name} is paused", queue=queue.name, paused=True)


@command(_BY_HAND)
def resume(queue: Queue) -> None:
    """Let a queue fire messages again after `ignis pause`."""
    queue.resume()
    name, stays = queue.name, queue.info.is_paused
    text = f"queue {name} is resumed"
    if stays:
        text += f", but its concurrency is 0: run ignis set {name} concurrency=8"
    answer(text, queue=name, paused=stays)


@command(_BY_HAND)
def get(
    queue: Queue,
    ids: MessageIds = None,
    where: Where = None,
    every: Every = False,
    magazine: Within = None,
) -> None:
    """Show chosen messages, waiting or in flight, without taking them."""
    messages = _chosen(queue, ids, where, every, magazine).rows()
    show(messages, [name for name in messages.column_names if name != "_queue"])


@command(_BY_HAND)
def fire(
    queue: Queue,
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
    with between_transactions() as interrupts:
        try:
            firing = queue.fire(count, selector=where, magazine=magazine)
        except KeyboardInterrupt:
            complain(f"fire was interrupted; if messages are in flight, {_way_back(queue)}")
            raise
    with _not_forgotten(queue, firing):
        interrupts.check()
        show(firing.messages, [name for name in firing.messages.column_names if name != "_queue"])
        # Whoever reads them has them, before they are removed.
        flush()
        if delete:
            queue.delete(firing)
    if not len(firing):
        if queue.info.is_paused:
            complain(f"queue {queue.name} is paused: ignis resume {queue.name}")
    elif not delete:
        complain(_in_flight(queue, len(firing)))


@command(_BY_HAND)
def delete(
    queue: Queue,
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
    chosen = _chosen(queue, ids, where, every, magazine)
    done = _do("delete", chosen, Chosen.delete, f"of {queue.name} for good", yes)
    answer(f"{counted(done)} of {queue.name} deleted", deleted=done)


@command(_BY_HAND)
def sideline(
    queue: Queue,
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
    chosen = _chosen(queue, ids, where, every, "main")
    done = _do("sideline", chosen, lambda these: these.sideline(reason), f"of {queue.name}", yes)
    answer(f"{counted(done)} of {queue.name} sidelined", sidelined=done)


@command(_BY_HAND)
def requeue(
    queue: Queue,
    ids: MessageIds = None,
    where: Where = None,
    every: Every = False,
    yes: Yes = False,
) -> None:
    """
    Move chosen messages from the sideline to the tail of main, dead ones too.

    A bounded queue takes only as many as it has room for. The exit code is 1 if you answer no.
    """
    chosen = _chosen(queue, ids, where, every, "sideline")
    done = _do("requeue", chosen, Chosen.requeue, f"of {queue.name}", yes)
    answer(f"{counted(done)} of {queue.name} requeued", requeued=done)


@command(_BY_HAND)
def reload(
    queue: Queue,
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
    chosen = _chosen(queue, ids, where, every, magazine)
    run = partial(Chosen.reload, consumer=consumer)
    done = _do("reload", chosen, run, f"of {queue.name}", yes, consumer)
    answer(f"{counted(done)} of {queue.name} reloaded", reloaded=done)


@command(_BY_HAND)
def edit(
    queue: Queue,
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
    values = row_files.values(set or [], queue.schema) | dict.fromkeys(null or ())
    queue.edit(message, values)
    answer(f"message {message} of {queue.name} is edited, and back in main", edited=message)


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
    act: str,
    chosen: Chosen,
    run: Callable[[Chosen], int],
    of: str,
    yes: bool,
    consumer: str | None = None,
) -> int:
    """
    Run an act after a question with the number of messages; end with 1 if the answer is no.

    It concerns the messages that were counted for the question, and no others.
    """
    if yes:
        with counting(act, len(chosen.ids)):
            return run(chosen)
    counted_ones, there = chosen.only(act, consumer=consumer), chosen.count()
    concerned = len(counted_ones.ids)
    if not concerned:
        return 0
    left = f", and leave {counted(there - concerned)} alone" if there > concerned else ""
    ask(f"{act} {counted(concerned)} {of}{left}")
    with counting(act, concerned):
        return run(counted_ones)
