"""The actions on a queue: each is a row with its fields, and a function that counts and acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import NamedTuple

from ignis_console import redrives
from ignis_console.ask import GROUP, Ask, Parameter
from ignis_console.choosing import choose
from ignis_console.console import Console
from queue_core.catalog import queues
from queue_core.catalog.records import acts, figures
from queue_core.catalog.records.jobs import Wish
from queue_core.errors import BadOption, Conflict
from queue_core.queue.queue import Queue
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine
from queue_core.values.rows import Numbers
from queue_core.verbs.operator import jobs, redriving
from queue_core.verbs.operator.chosen import Chosen, among, horizon_of, number_of
from queue_core.watching import wording
from queue_core.watching.holders import holding


class PreparedAction(NamedTuple):
    """An action that can be run: how many messages it means now, in words, and its verb."""

    messages: int
    #: A sentence with the number of messages.
    text: str
    #: Returns how many messages it has changed, or the id of a job that it has started.
    run: Callable[[], int | str]
    #: The messages; None: a rule says which they are when it runs.
    these: Chosen | None = None
    #: If there are none: who holds messages of the queue in flight, by consumer, in words.
    held: Mapping[str, str] = {}


#: Returns None if the form does not say yet which messages are meant.
Prepare = Callable[[Console, Ask], PreparedAction | None]


class Action(NamedTuple):
    """An action on one queue."""

    name: str
    about: str
    fields: tuple[Parameter, ...]
    #: What has happened to the messages afterwards.
    done: str
    prepare: Prepare
    #: Whether it cannot be undone, so that the name of the queue must be typed.
    destroys: bool
    #: Whether it acts on the messages that were counted, so that no more of them may be there.
    on_messages: bool

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its fields, and the group of the sideline that may take the place of ids."""
        return (*self.fields, *(GROUP if _IDS in self.fields else ()))


ACTIONS: dict[str, Action] = {}


def _action(
    about: str, *fields: Parameter, done: str, destroys: bool = False, on_messages: bool = True
) -> Callable[[Prepare], Prepare]:
    """Add the action of a function, which has its name."""

    def add(prepare: Prepare) -> Prepare:
        name = prepare.__name__
        ACTIONS[name] = Action(name, about, fields, done, prepare, destroys, on_messages)
        return prepare

    return add


def _on_named(
    about: str, field: Parameter, *, done: str
) -> Callable[[Callable[[Console, Ask, str], PreparedAction]], None]:
    """Add the action of a function on what a field says; an empty one chooses nothing yet."""

    def add(prepare: Callable[[Console, Ask, str], PreparedAction]) -> None:
        @wraps(prepare)
        def named(console: Console, ask: Ask) -> PreparedAction | None:
            # A queue that is gone has no form.
            console.store.queue(ask.queue)
            text = ask.text(field.name)
            return None if text is None else prepare(console, ask, text)

        _action(about, field, done=done, on_messages=False)(named)

    return add


_IDS = Parameter("ids", "Message ids, with spaces or commas between them.", "Ids", "ids")
_SELECTOR = Parameter("selector", "A SQL condition, such as amount > 10.", "Selector")
_ALL = Parameter("all", label="All messages", kind="check")
_FORCE = Parameter("force", label="Dead messages too", kind="check")
_MAGAZINE = Parameter("magazine", "", "Magazine", "select", ("both", "main", "sideline"))


@_action(
    "No messages are fired, in any process, until the queue is resumed.",
    done="The queue is paused.",
    on_messages=False,
)
def pause(console: Console, ask: Ask) -> PreparedAction:
    """Pause the queue."""
    queue = console.store.queue(ask.queue)
    text = "{} until a person resumes the queue. Loads go on."
    return _on_queue(console, ask, text, queue.admin.pause)


@_action("Messages are fired again.", done="The queue is resumed.", on_messages=False)
def resume(console: Console, ask: Ask) -> PreparedAction:
    """Resume the queue."""
    queue = console.store.queue(ask.queue)
    text = "{}, and can be fired again."
    if not queue.info.settings.concurrency:
        text += " The queue stays paused, because its concurrency is 0: scale it as well."
    return _on_queue(console, ask, text, queue.admin.resume)


@_on_named(
    "Running queries and pools follow the concurrency of the queue.",
    Parameter("concurrency", "0 to 100; 0 pauses the queue.", "Concurrency", "number"),
    done="The concurrency is changed.",
)
def scale(console: Console, ask: Ask, _: str) -> PreparedAction:
    """Change the concurrency of the queue."""
    queue = console.store.queue(ask.queue)
    wanted, now = ask.number("concurrency", 0, 0, 100), queue.info.settings.concurrency
    text = f"The concurrency goes from {now} to {wanted}. {{}}."
    text += " Nothing is fired at 0." if not wanted else ""
    return _on_queue(console, ask, text, lambda: queue.admin.change_settings(concurrency=wanted))


@_action(
    "Messages of the sideline return to the tail of main, to be tried again, or go to another "
    "queue. The command is ignis shovel.",
    _IDS,
    _SELECTOR,
    Parameter(
        "limit", "Messages, the first that were loaded. By default, all.", "At most", "number"
    ),
    Parameter("rate", "Messages a second. By default, at once.", "Per second"),
    Parameter("to", "The name of another queue. By default, back to main.", "To"),
    _FORCE,
    done="{} redriven.",
)
def redrive(console: Console, ask: Ask) -> PreparedAction:
    """Redrive chosen messages of the sideline, at once, or at a rate or to a queue as a job."""
    queue = console.store.queue(ask.queue)
    selector, rate, to = ask.text("selector"), ask.rate("rate"), ask.text("to")
    force = ask.flag("force")
    limit = ask.number("limit", 0, 1, 1 << 40) or None
    chosen = choose(console, ask, "sideline", all_by_default=True)
    assert chosen is not None, "by default, these are all"
    found = _redrivable(queue, chosen, to, force)
    dead = 0 if force else len(_redrivable(queue, chosen, to, True)) - len(found)
    ids = found[:limit]
    place = "the tail of main" if to in (None, queue.name) else f"queue {to}"
    text = f"{wording.counted(len(ids))} would go from the sideline to {place}."
    if dead:
        number = f"{wording.number(dead)} dead {'one matches' if dead == 1 else 'ones match'}"
        text += f" {number}: tick “{_FORCE.label}” to redrive {'it' if dead == 1 else 'them'}."
    if rate is not None:
        text += f" At {wording.rate(rate)}, this takes {wording.age(len(ids) / rate)}."
    if rate is not None or to is not None:
        text += " A process that runs side tasks moves them as a job."
    these = among(chosen, IdSet.of(ids))

    def run() -> int | str:
        if not len(ids):
            return 0
        if rate is None and to is None:
            return these.requeue()
        wish = Wish(selector=selector, rate=rate, force=force, ids=IdSet.of(ids))
        catalog, storage = console.store.catalog, console.store.storage
        wished = redriving.wished(catalog, queue.info, to, wish)
        # Another redrive of the same ones may have moved some, which have failed again by now.
        counted = horizon_of(chosen, Magazine.SIDELINE)
        how = {"selector": selector, "rate": rate, "force": force, "to": to, "ids": ids}
        with acts.acting(catalog, "shovel", queue.name, how):
            return jobs.start(catalog, storage, wished, acts.doer(), counted)

    return PreparedAction(len(ids), text, run, these)


@_on_named(
    "The redrive stops. Messages that it has moved stay where they are.",
    Parameter("job", "Its id, as the page of redrives shows it.", "Redrive"),
    done="The redrive is cancelled; it had moved {}.",
)
def cancel(console: Console, ask: Ask, job: str) -> PreparedAction:
    """Cancel a redrive of the queue."""
    found = redrives.find(console.store, ask.queue, job)
    if found["ended_at"] is not None:
        raise BadOption(f"redrive {job} has ended: it is {found['state']}")
    left = wording.counted(max(found["total"] - found["moved"], 0))
    text = f"It has moved {wording.counted(found['moved'])}. {left} would stay in the sideline."

    def run() -> int:
        if not console.store.admin.cancel(job):
            raise Conflict(f"nothing was changed: redrive {job} has just ended")
        return int(redrives.find(console.store, ask.queue, job)["moved"])

    return PreparedAction(found["moved"], text, run)


@_action(
    "Messages that dead consumers hold go to the sideline.",
    Parameter(
        "older_than", "By default, the setting sweep_after.", "Seconds since the firing", "number"
    ),
    done="{} swept.",
)
def sweep(console: Console, ask: Ask) -> PreparedAction:
    """Sweep the queue."""
    queue = console.store.queue(ask.queue)
    age = ask.number("older_than", -1, 0, 10**9)
    older_than = None if age < 0 else float(age)
    count = queue.sweep(older_than, dry_run=True)
    text = (
        f"{wording.counted(count)} of consumers that are dead, or fired too often, would move to "
        "the sideline."
    )
    # Further messages may become stuck in the meantime.
    return PreparedAction(
        count,
        text,
        lambda: queue.sweep(older_than, limit=count) if count else 0,
        held={} if count else holding(queue.store.catalog, queue.info)[0],
    )


@_on_named(
    "Messages are fired again, in all processes. It opens again if too many calls fail.",
    Parameter("breaker", "Its name, as ignis breakers shows it.", "Breaker"),
    done="The breaker is closed.",
)
def close_breaker(console: Console, ask: Ask, name: str) -> PreparedAction:
    """Close a breaker, and leave it to itself."""
    switch = console.store.admin.breaker(name)

    def close() -> None:
        switch.close()
        switch.release()

    return _on_queue(console, ask, f"Breaker {name} is closed. {{}}.", close)


@_action(
    "Damaged messages wait again if their files are whole. The others stay as they are.",
    done="{} put back.",
)
def repair(console: Console, ask: Ask) -> PreparedAction:
    """Put damaged messages back whose files were restored."""
    queue = console.store.queue(ask.queue)
    with console.store.catalog.read() as connection:
        (row,) = figures.read(connection, [queue.info.id])
    count = int(row.damaged or 0)
    text = f"{wording.counted(count)} would wait again, as far as their files are whole."
    return PreparedAction(count, text, lambda: queue.admin.repair().all_or_error())


def _on_chosen(
    about: str,
    text: str,
    *fields: Parameter,
    done: str,
    magazine: str | None = None,
    destroys: bool = False,
) -> Callable[[Callable[[Chosen, Ask], int]], None]:
    """
    Add the action of a function on chosen messages, which is named after the act.

    *text* has a place for their number. *magazine*: where they are; None: in both, or in that of
    the field `magazine`.
    """

    def add(run: Callable[[Chosen, Ask], int]) -> None:
        @wraps(run)
        def prepare(console: Console, ask: Ask) -> PreparedAction | None:
            where = ask.one_of("magazine", _MAGAZINE.options) if magazine is None else magazine
            chosen = choose(console, ask, None if where == "both" else where)
            if chosen is None:
                return None
            # Messages that come into the right state from now on stay as they are.
            there = chosen.count()
            concerned = chosen.only(run.__name__, consumer=ask.text("consumer"))
            number = number_of(concerned)
            words = text.format(wording.counted(number))
            if there > number:
                stay = wording.counted(there - number)
                words += f" {stay} that you chose would stay as they are."
            held: dict[str, str] = {}
            if run.__name__ == "reload" and not number:
                held, _ = holding(console.store.catalog, console.store.queue(ask.queue).info)
            return PreparedAction(number, words, lambda: run(concerned, ask), concerned, held)

        _action(about, _IDS, _SELECTOR, _ALL, *fields, done=done, destroys=destroys)(prepare)

    return add


@_on_chosen(
    "Messages that wait in main go to the sideline, and stay there until a person acts.",
    "{} would move to the sideline.",
    Parameter("reason_text", "Shown in the sideline.", "Reason"),
    done="{} sidelined.",
    magazine="main",
)
def sideline(these: Chosen, ask: Ask) -> int:
    """Sideline chosen messages of main."""
    return these.sideline(ask.text("reason_text"))


@_on_chosen(
    "Messages in flight return to their old places. Their consumer may have handled them.",
    "{} would wait again.",
    Parameter(
        "consumer",
        "Take them from it, even if it is alive. By default, from dead consumers.",
        "Consumer",
    ),
    done="{} reloaded.",
)
def reload(these: Chosen, ask: Ask) -> int:
    """Reload chosen messages that are in flight."""
    return these.reload(consumer=ask.text("consumer"))


@_on_chosen(
    "Messages that wait are removed for good. Messages in flight stay.",
    "{} would be deleted for good.",
    _MAGAZINE,
    done="{} deleted.",
    destroys=True,
)
def delete(these: Chosen, _: Ask) -> int:
    """Delete chosen messages that wait."""
    return these.delete()


def _on_queue(console: Console, ask: Ask, text: str, act: Callable[[], object]) -> PreparedAction:
    """Prepare an act on the queue; *text* has a place for the messages that wait."""
    # Counted now, and not some seconds ago.
    with console.store.catalog.read() as connection:
        (row,) = figures.read(connection, [queues.find(connection, ask.queue).id])
    if row.waiting is None:
        raise BadOption(f"queue {ask.queue!r}: the number of waiting messages is not known")
    waiting = int(row.waiting)

    def run() -> int:
        act()
        return waiting

    return PreparedAction(
        waiting, text.format(wording.counted(waiting, "message waits", "messages wait")), run
    )


def _redrivable(queue: Queue, chosen: Chosen, to: str | None, force: bool) -> Numbers:
    """Return the ids of the chosen messages that a redrive moves; *force*: dead ones too."""
    catalog, wish = queue.store.catalog, Wish(ids=IdSet.of(chosen.ids), force=force)
    wished = redriving.wished(catalog, queue.info, to, wish)
    since = horizon_of(chosen, Magazine.SIDELINE)
    return redriving.find(catalog, queue.store.storage, wished, since)
