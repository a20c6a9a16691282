"""Commands by which a person handles queues and messages: pause, resume, get, delete, and so on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, TypeAlias

import typer
from typer import Option

from ignis_cli import row_files
from ignis_cli.app import TAKES, Count, EachQueue, Name, Where, Yes, ask, command
from ignis_cli.counting import between_transactions, counting
from ignis_cli.display import OutputLost, answer, complain, flush
from ignis_cli.invocation import BROKEN, REFUSED
from ignis_cli.tables import forced, say_what_expires, say_what_lacks, show
from queue_core import Chosen, Firing, IgnisError, Queue, Store
from queue_core.catalog.records import acts
from queue_core.errors import BadOption
from queue_core.values.names import nearest
from queue_core.watching.holders import holding
from queue_core.watching.wording import counted

_BY_HAND = "By hand"

MessageIds = Annotated[
    list[int] | None,
    Option("--id", metavar="ID", help="Id of a message, as _message_id. Repeatable."),
]
Every = Annotated[bool, Option("--all", help="All messages of the queue.")]
Within = Annotated[
    str | None,
    Option(help="Only messages in this magazine: main or sideline. By default, both."),
]


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """Messages that a command line chooses."""

    queue: Queue
    messages: Chosen
    #: Whether --all chooses them: then there may be none.
    every: bool

    def change(self, act: str, done: str, yes: bool, for_good: str = "", **how: Any) -> None:
        """
        Run an act after a question with the number of messages; end with 1 if the answer is no.

        It changes only the messages that were counted for the question.
        """
        messages, concerned = self.messages, len(self.messages.ids)
        if act == "requeue":
            every = forced(self.queue, messages.ids, None, None)
            say_what_expires(self.queue.store, every)
        if not yes:
            # A consumer decides which messages are concerned, and a reason does not.
            decides = {"consumer": how["consumer"]} if "consumer" in how else {}
            messages, there = self.messages.only(act, **decides), self.messages.count()
            concerned = len(messages.ids)
            left = f", and leave {counted(there - concerned)} alone" if there > concerned else ""
            if concerned:
                ask(f"{act} {counted(concerned)} of {self.queue.name}{for_good}{left}")
        changed = 0
        if concerned:
            with counting(act, concerned):
                changed = getattr(messages, act)(**how)
        lines = [f"{counted(changed)} of {self.queue.name} {done}"]
        figures: dict[str, Any] = {done: changed}
        if act == "reload" and not changed:
            sentences, held = holding(self.queue.store.catalog, self.queue.info)
            lines += sentences.values()
            figures |= {"held": held} if held else {}
        answer("\n".join(lines), **figures)
        if not (changed or self.every):
            raise typer.Exit(BROKEN)


def _choose(
    store: Store,
    queue: Name,
    *,
    ids: MessageIds = None,
    where: Where = None,
    every: Every = False,
    magazine: Within = None,
) -> QueueChoice:
    if every == bool(ids or where):
        raise BadOption("choose the messages with --id, with --where, with both, or with --all")
    found = store.queue(queue)
    chosen = found.choose("all" if every else ids or None, where, magazine)
    return QueueChoice(found, chosen, every)


InMain: TypeAlias = Annotated[QueueChoice, "main"]
InSideline: TypeAlias = Annotated[QueueChoice, "sideline"]
TAKES |= {
    "QueueChoice": _choose,
    "InMain": partial(_choose, magazine="main"),
    "InSideline": partial(_choose, magazine="sideline"),
}


@command(_BY_HAND)
def pause(queue: EachQueue) -> None:
    """
    Pause a queue for every process: no messages are fired until `ignis resume`.

    Loads, settlements and side tasks continue.
    """
    queue.admin.pause()
    answer(f"queue {queue.name} is paused", queue=queue.name, paused=True)


@command(_BY_HAND)
def resume(queue: EachQueue) -> None:
    """Let a queue fire messages again after `ignis pause`."""
    queue.admin.resume()
    name, stays = queue.name, queue.info.is_paused
    text = f"queue {name} is resumed"
    if stays:
        text += f", but its concurrency is 0: run ignis set {name} concurrency=8"
    answer(text, queue=name, paused=stays)


@command(_BY_HAND)
def get(these: QueueChoice) -> None:
    """
    Show chosen messages, waiting or in flight, without taking them.

    The exit code is 1 if none has the --id or fits --where. `ignis message` shows more of one.
    """
    rows = these.messages.rows()
    show(rows, without=("_queue",))
    if not (rows.num_rows or these.every):
        complain(f"queue {these.queue.name} has no such message")
        raise typer.Exit(BROKEN)


@command(_BY_HAND)
def fire(
    queue: Queue,
    *,
    count: Count = 1,
    where: Where = None,
    magazine: str = "main",
    delete: bool = False,
) -> None:
    """
    Take the next messages, and show them.

    They stay in flight, so that no consumer gets them: `ignis reload` puts them back, and with
    --delete, they are removed. If the command is killed, a sweep sidelines them.

    Args:
        count: Take at most this many messages.
        magazine: The magazine: main or sideline.
        delete: Remove the messages when they have been printed.
    """
    with between_transactions() as interrupts:
        try:
            firing = queue.fire(count, selector=where, magazine=magazine)
        except KeyboardInterrupt:
            complain(f"fire was interrupted; if messages are in flight, {_way_back(queue)}")
            raise
    with _not_forgotten(queue, firing):
        interrupts.check()
        show(firing.messages, without=("_queue",))
        # Whoever reads them has them, before they are removed.
        flush()
        if delete:
            chosen = {"magazine": magazine, "selector": where, "count": count}
            with acts.acting(queue.store.catalog, "fire and delete", queue.name, chosen):
                queue.delete(firing)
    if len(firing) and not delete:
        complain(_in_flight(queue, len(firing)))
    if len(firing) < count:
        say_what_lacks(queue, len(firing))


@command(_BY_HAND)
def delete(these: QueueChoice, *, yes: Yes = False) -> None:
    """
    Remove chosen messages that wait, for good.

    Messages in flight stay: reload them first. The exit code is 1 if you answer no, or if --id or
    --where is given and no message was removed.
    """
    these.change("delete", "deleted", yes, " for good")


@command(_BY_HAND)
def sideline(these: InMain, *, reason: str | None = None, yes: Yes = False) -> None:
    """
    Move chosen messages that wait in main to the sideline.

    They do not count as failed, and no shovel moves them without --force: requeue returns them. The
    exit code is 1 if you answer no, or if --id or --where is given and no message was moved.

    Args:
        reason: Any text, which the view failures shows.
    """
    these.change("sideline", "sidelined", yes, reason=reason)


@command(_BY_HAND)
def requeue(these: InSideline, *, yes: Yes = False) -> None:
    """
    Move chosen messages from the sideline to the tail of main, dead ones too.

    A bounded queue takes only as many as it has room for, and messages that would expire in main
    stay. The exit code is 1 if you answer no, or if --id or --where is given and no message was
    moved.
    """
    these.change("requeue", "requeued", yes)


@command(_BY_HAND)
def reload(these: QueueChoice, *, consumer: str | None = None, yes: Yes = False) -> None:
    """
    Put chosen messages that are in flight back to their old places.

    Their consumer may have handled them already, and they will be handled again. The exit code is 1
    if you answer no, or if --id or --where is given and no message was put back.

    Args:
        consumer (CONSUMER): Take the messages from this consumer, even if it is alive. By default,
            from consumers without a sign of life for a minute.
    """
    these.change("reload", "reloaded", yes, consumer=consumer)


@command(_BY_HAND)
def edit(
    queue: Queue,
    message: int,
    *,
    set: list[str] | None = None,
    null: list[str] | None = None,
) -> None:
    """
    Change columns of a message in the sideline, and move it to the tail of main.

    Args:
        message (ID): Id of a message in the sideline.
        set (COLUMN=VALUE): A new value: text, base64 for binary columns, or JSON for columns of
            other types. Repeatable.
        null (COLUMN): Set a column to null. Repeatable.
    """
    values = row_files.values(set or [], queue.schema) | dict.fromkeys(null or ())
    queue.edit(message, values)
    answer(f"message {message} of {queue.name} is edited, and back in main", edited=message)


#: What a person does with a breaker.
Turn = StrEnum("Turn", ["open", "close", "auto", "forget"])


@command(_BY_HAND)
def breaker(store: Store, turn: Turn, name: str, *, create: bool = False) -> None:
    """
    Open or close a circuit breaker by hand.

    While it is open, its handler gets no messages. Processes notice it within a second.

    Args:
        turn: open, close, auto, which lets it work by itself again, or forget, which removes its
            state, as if it had never opened.
        name: The breaker: by default, its queues.
        create: Accept a name that has never opened and is not that of queues, such as that of a
            handler that was not started yet.
    """
    _check_known(store, turn, name, create)
    switch = store.admin.breaker(name)
    act, done = {
        Turn.open: (switch.open, "open"),
        Turn.close: (switch.close, "closed"),
        Turn.auto: (switch.release, "left to itself"),
        Turn.forget: (switch.forget, "forgotten"),
    }[turn]
    act()
    answer(f"breaker {name} is {done}", breaker=name, turn=turn.value)


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


def _check_known(store: Store, turn: Turn, name: str, create: bool) -> None:
    """
    Raise `BadOption` for a breaker that no handler is known to have.

    The catalog learns a name when its breaker opens; by default, it consists of names of queues.
    """
    known, of_queues = store.view("breakers").column("breaker").to_pylist(), store.queues()
    if turn is Turn.forget:
        create, of_queues = False, []
    if create or name in known or set(name.split(",")) <= set(of_queues):
        return
    remedy = "" if turn is Turn.forget else ", or --create if its handler is still to start"
    raise BadOption(
        f"no breaker {name!r} has ever opened, and no queue has this name"
        f"{nearest(name, [*known, *of_queues])}; see: ignis breakers{remedy}"
    )
