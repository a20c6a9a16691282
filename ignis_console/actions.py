"""The table of actions: each with its fields, its count before, and its verb."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from ignis_console import wording
from ignis_console.ask import Ask
from ignis_console.choosing import choose
from ignis_console.console import Console
from queue_core.catalog import queues
from queue_core.catalog.records import figures
from queue_core.errors import BadOption
from queue_core.values.rows import Numbers


class Field(NamedTuple):
    """A field of the form of an action."""

    name: str
    label: str
    help: str = ""
    #: ``text``, ``long``, ``number`` or ``check``, or ``select`` with options.
    kind: str = "text"
    options: tuple[str, ...] = ()


class Started(NamedTuple):
    """A job that was started, and has changed nothing yet."""

    job: str


class Prepared(NamedTuple):
    """An action that can be run: how many messages it means now, in words, and its verb."""

    messages: int
    #: A sentence with the number of messages.
    text: str
    #: It gets the name of the person, and returns how many messages it has changed, or its job.
    run: Callable[[str], int | Started]
    #: The ids of the messages; None: a rule says which they are when it runs.
    ids: Numbers | None = None


class Action(NamedTuple):
    """An action on one queue."""

    name: str
    title: str
    about: str
    fields: tuple[Field, ...]
    #: Returns None if the form does not say yet which messages are meant.
    prepare: Callable[[Console, Ask], Prepared | None]
    #: What has happened to the messages afterwards.
    done: str
    #: Whether it cannot be undone, so that the name of the queue must be typed.
    destroys: bool = False
    #: Whether it acts on the messages that were counted, so that no more of them may be there.
    on_messages: bool = True


def _pause(console: Console, ask: Ask) -> Prepared:
    queue = console.store.queue(ask.queue)

    def run(_: str) -> int:
        queue.pause()
        return waiting

    waiting = _waiting(console, ask)
    text = f"{_wait(waiting)} until somebody resumes the queue. Loads go on."
    return Prepared(waiting, text, run)


def _resume(console: Console, ask: Ask) -> Prepared:
    queue = console.store.queue(ask.queue)

    def run(_: str) -> int:
        queue.resume()
        return waiting

    waiting = _waiting(console, ask)
    text = f"{_wait(waiting)}, and can be fired again."
    if not queue.info.settings.concurrency:
        text += " The queue stays paused, because its concurrency is 0: scale it as well."
    return Prepared(waiting, text, run)


def _scale(console: Console, ask: Ask) -> Prepared | None:
    queue = console.store.queue(ask.queue)
    if ask.text("concurrency") is None:
        return None
    wanted, now = ask.number("concurrency", 0, 0, 100), queue.info.settings.concurrency

    def run(_: str) -> int:
        queue.change_settings(concurrency=wanted)
        return waiting

    waiting = _waiting(console, ask)
    text = f"The concurrency goes from {now} to {wanted}. {_wait(waiting)}."
    return Prepared(waiting, text + (" Nothing is fired at 0." if not wanted else ""), run)


def _shovel(console: Console, ask: Ask) -> Prepared:
    queue = console.store.queue(ask.queue)
    selector, force = ask.text("selector"), ask.flag("force")
    limit = ask.number("limit", 0, 1, 1 << 40) or None
    rate = _rate(ask)

    def run(who: str) -> int | Started:
        if not count:
            return 0
        if rate is not None:
            return Started(
                queue.start_shovel(count, selector=selector, rate=rate, force=force, who=who[:200])
            )
        return queue.shovel(count, selector=selector, force=force)

    count = queue.shovel(limit, selector=selector, force=force, dry_run=True)
    text = f"{wording.messages(count)} would move from the sideline to the tail of main."
    if rate is not None:
        text += " A process that runs side tasks moves them as a job."
    return Prepared(count, text, run)


def _sweep(console: Console, ask: Ask) -> Prepared:
    queue = console.store.queue(ask.queue)
    age = ask.number("older_than", -1, 0, 10**9)
    older_than = None if age < 0 else float(age)
    count = queue.sweep(older_than, dry_run=True)
    text = (
        f"{wording.messages(count)} of consumers that are dead, or fired too often, would move to "
        "the sideline."
    )
    # Others become stuck meanwhile.
    return Prepared(count, text, lambda _: queue.sweep(older_than, limit=count) if count else 0)


def _by_hand(act: str, text: str, magazine: str | None) -> Callable[..., Prepared | None]:
    """Return what prepares an act on chosen messages; *text* has a place for their number."""

    def prepare(console: Console, ask: Ask) -> Prepared | None:
        within = magazine
        if within is None:
            asked = ask.one_of("magazine", ("both", "main", "sideline"))
            within = None if asked == "both" else asked
        chosen = choose(console, ask, within)
        if chosen is None:
            return None
        consumer = ask.text("consumer") if act == "reload" else None
        # Others that come into the right state from now on stay as they are.
        concerned, there = chosen.only(act, consumer=consumer), chosen.count()
        ids = concerned.ids.to_numpy()
        count = len(ids)
        words = text.format(wording.messages(count))
        if there > count:
            words += f" {wording.messages(there - count)} that you chose would stay as they are."

        def run(_: str) -> int:
            if act == "delete":
                return concerned.delete()
            if act == "sideline":
                return concerned.sideline(ask.text("reason_text"))
            return concerned.requeue() if act == "requeue" else concerned.reload(consumer=consumer)

        return Prepared(count, words, run, ids)

    return prepare


def _waiting(console: Console, ask: Ask) -> int:
    """Count the messages that wait now, and not some seconds ago."""
    with console.store.catalog.read() as connection:
        (row,) = figures.read(connection, [queues.find(connection, ask.queue).id])
    if row.waiting is None:
        raise BadOption(f"queue {ask.queue!r}: the number of waiting messages is not known")
    return int(row.waiting)


def _wait(count: int) -> str:
    return f"{wording.messages(count)} {'waits' if count == 1 else 'wait'}"


def _rate(ask: Ask) -> float | None:
    text = ask.text("rate")
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < inf:
        raise BadOption(f"rate={text!r}: use messages a second, more than 0, such as 100")
    return rate


_IDS = Field("ids", "Ids", "Message ids, with spaces or commas between them.", "long")
_SELECTOR = Field("selector", "Selector", "A SQL condition, such as amount > 10.")
_ALL = Field("all", "All messages", kind="check")
_MAGAZINE = Field("magazine", "Magazine", kind="select", options=("both", "main", "sideline"))

ACTIONS = {
    each.name: each
    for each in (
        Action(
            "pause",
            "Pause",
            "No messages are fired, in any process, until the queue is resumed.",
            (),
            _pause,
            "The queue is paused.",
            on_messages=False,
        ),
        Action(
            "resume",
            "Resume",
            "Messages are fired again.",
            (),
            _resume,
            "The queue is resumed.",
            on_messages=False,
        ),
        Action(
            "scale",
            "Scale",
            "Running queries and pools follow the concurrency of the queue.",
            (Field("concurrency", "Concurrency", "0 to 100; 0 pauses the queue.", "number"),),
            _scale,
            "The concurrency is changed.",
            on_messages=False,
        ),
        Action(
            "shovel",
            "Shovel",
            "Sidelined messages return to the tail of main, to be tried again. Dead ones stay.",
            (
                _SELECTOR,
                Field("limit", "At most", "Messages. By default, all.", "number"),
                Field("rate", "Per second", "Messages a second, as a job. By default, at once."),
                Field("force", "Dead messages too", kind="check"),
            ),
            _shovel,
            "{} shovelled.",
        ),
        Action(
            "sweep",
            "Sweep",
            "Messages that dead consumers hold go to the sideline.",
            (
                Field(
                    "older_than",
                    "Seconds since the firing",
                    "By default, the setting sweep_after.",
                    "number",
                ),
            ),
            _sweep,
            "{} swept.",
        ),
        Action(
            "sideline",
            "Sideline",
            "Messages that wait in main go to the sideline, and stay there until a person acts.",
            (_IDS, _SELECTOR, _ALL, Field("reason_text", "Reason", "Shown in the sideline.")),
            _by_hand("sideline", "{} would move to the sideline.", "main"),
            "{} sidelined.",
        ),
        Action(
            "requeue",
            "Requeue",
            "Messages of the sideline return to the tail of main, dead ones too.",
            (_IDS, _SELECTOR, _ALL),
            _by_hand("requeue", "{} would return to the tail of main.", "sideline"),
            "{} requeued.",
        ),
        Action(
            "reload",
            "Reload",
            "Messages in flight return to their old places. Their consumer may have handled them.",
            (
                _IDS,
                _SELECTOR,
                _ALL,
                Field(
                    "consumer",
                    "Consumer",
                    "Take them from it, even if it is alive. By default, from dead consumers.",
                ),
            ),
            _by_hand("reload", "{} would wait again.", None),
            "{} reloaded.",
        ),
        Action(
            "delete",
            "Delete",
            "Messages that wait are removed for good. Messages in flight stay.",
            (_IDS, _SELECTOR, _ALL, _MAGAZINE),
            _by_hand("delete", "{} would be deleted for good.", None),
            "{} deleted.",
            destroys=True,
        ),
    )
}
