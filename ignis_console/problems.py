"""Problems: what the figures say that a person should look at. Pure functions, one per rule.

The thresholds are those of docs/monitoring/alerts.yml where there is an alert for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from ignis_console import wording
from ignis_console.figures import Figures, QueueFigures

#: Seconds without a heartbeat after which a consumer is dead.
DEAD_AFTER = 60.0
#: Seconds after which a message that was due to return is late.
RETRY_LATE = 60.0
#: Seconds without samples after which nobody runs side tasks.
TASKS_LATE = 600.0
#: The longest usual seconds between two runs of a side task of the store or of most queues.
TASK_EVERY = {"sample": 10.0, "expire": 300.0, "compact": 300.0, "sweep": 900.0, "vacuum": 3600.0}


class Severity(StrEnum):
    """How bad a problem is."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem."""

    severity: Severity
    #: One word for the rule, such as ``old``.
    kind: str
    #: The queue, or None for the store.
    queue: str | None
    #: What is wrong, with figures.
    text: str
    #: What a person can do.
    advice: str


def find(figures: Figures, oldest_wanted: float) -> list[Problem]:
    """Return all problems, the worst first. *oldest_wanted*: the most seconds since a load."""
    order = list(Severity)
    found = chain(
        (p for queue in figures.queues for p in of_queue(queue, oldest_wanted)),
        _dead_consumers(figures),
        _side_tasks(figures),
        _breakers(figures),
        _jobs(figures),
    )
    return sorted(found, key=lambda each: (order.index(each.severity), each.queue or ""))


def of_queue(queue: QueueFigures, oldest_wanted: float) -> Iterator[Problem]:
    """Yield the problems of one queue."""
    yield from _old(queue, oldest_wanted)
    for rule in _RULES:
        yield from rule(queue)


def _old(queue: QueueFigures, wanted: float) -> Iterator[Problem]:
    if queue.oldest_age is not None and queue.oldest_age > wanted and not queue.is_paused:
        yield Problem(
            Severity.WARNING,
            "old",
            queue.name,
            f"The oldest waiting message was loaded {wording.age(queue.oldest_age)} ago; wanted "
            f"are at most {wording.age(wanted)}.",
            "Look whether consumers run and keep up, or raise their number. Messages that were "
            "requeued are as old as their load.",
        )


def _overdue(queue: QueueFigures) -> Iterator[Problem]:
    if queue.overdue_for is not None and queue.overdue_for > RETRY_LATE:
        yield Problem(
            Severity.WARNING,
            "overdue",
            queue.name,
            f"Messages of the sideline were due to return {wording.age(queue.overdue_for)} ago, "
            "and no process has moved them.",
            "Start a process that runs side tasks, or shovel by hand.",
        )


def _growing(queue: QueueFigures) -> Iterator[Problem]:
    past = [each.sidelined for each in queue.samples if each.sidelined is not None]
    grows = queue.sidelined is not None and past and queue.sidelined > past[0]
    if queue.retries or not grows:
        return
    if queue.shovel_interval is None:
        ago = "no shovel is planned"
    elif queue.shovelled_before is None:
        ago = "no process has ever run its shovel"
    elif queue.shovelled_before > 3 * queue.shovel_interval:
        ago = f"its shovel last ran {wording.age(queue.shovelled_before)} ago"
    else:
        return
    yield Problem(
        Severity.WARNING,
        "growing",
        queue.name,
        f"The sideline grows: {wording.number(past[0])} to {wording.number(queue.sidelined)} in "
        f"ten minutes, and {ago}.",
        "Start a process that runs side tasks, or shovel by hand.",
    )


def _dead(queue: QueueFigures) -> Iterator[Problem]:
    if queue.dead:
        yield Problem(
            Severity.WARNING,
            "dead",
            queue.name,
            f"{wording.messages(queue.dead)} in the sideline {_are(queue.dead)} not tried again.",
            "Look at the reasons in the sideline; requeue or delete the messages.",
        )


def _damaged(queue: QueueFigures) -> Iterator[Problem]:
    if queue.damaged:
        yield Problem(
            Severity.CRITICAL,
            "damaged",
            queue.name,
            f"{wording.messages(queue.damaged)} cannot be read: a segment is damaged or missing.",
            "Run ignis fsck --deep. Restore the file, then run ignis repair.",
        )


def _stuck(queue: QueueFigures) -> Iterator[Problem]:
    if queue.stuck:
        have = "has" if queue.stuck == 1 else "have"
        yield Problem(
            Severity.WARNING,
            "stuck",
            queue.name,
            f"{wording.messages(queue.stuck)} {have} been in flight for longer than the setting "
            f"sweep_after, for up to {wording.age(queue.stuck_for)}.",
            "Look whether the consumers run. If they are dead, let a process run the task sweep, "
            "or sweep or reload the messages.",
        )


def _full(queue: QueueFigures) -> Iterator[Problem]:
    if not queue.max_size or queue.overflow == "ring":
        return
    if queue.waiting is not None and queue.waiting >= queue.max_size:
        what = "wait" if queue.overflow == "block" else "are refused"
        yield Problem(
            Severity.WARNING,
            "full",
            queue.name,
            f"The queue is full: {wording.number(queue.waiting)} of "
            f"{wording.number(queue.max_size)} messages. Loads {what}.",
            "Start more consumers, or raise the setting max_size.",
        )


def _paused(queue: QueueFigures) -> Iterator[Problem]:
    if not queue.is_paused or queue.deactivated:
        return
    if queue.paused_for is not None:
        text = f"A person paused the queue {wording.age(queue.paused_for)} ago."
        advice = "Resume it when the reason is gone."
    else:
        text = "The queue is paused, because its concurrency is 0."
        advice = "Scale it to 1 or more."
    if queue.waiting is None or queue.waiting:
        text += f" {wording.messages(queue.waiting).capitalize()} {_wait(queue.waiting)}."
    yield Problem(Severity.NOTE, "paused", queue.name, text, advice)


_RULES: tuple[Callable[[QueueFigures], Iterator[Problem]], ...] = (
    _overdue,
    _growing,
    _dead,
    _damaged,
    _stuck,
    _full,
    _paused,
)


def _dead_consumers(figures: Figures) -> Iterator[Problem]:
    for holder in figures.holders:
        held = wording.messages(holder.held)
        if holder.silent_for is not None and holder.silent_for > DEAD_AFTER:
            yield Problem(
                Severity.WARNING,
                "silent",
                None,
                f"Consumer {holder.name} holds {held}, and has sent no heartbeat for "
                f"{wording.age(holder.silent_for)}.",
                "Start it again, or sweep or reload its messages.",
            )


def _side_tasks(figures: Figures) -> Iterator[Problem]:
    advice = "Start a query, a pool or a manager, or run ignis work: they run side tasks."
    if not figures.tasks:
        if figures.queues:
            yield Problem(
                Severity.WARNING,
                "tasks",
                None,
                "No process has ever run the side tasks of the store: no message is swept, "
                "shovelled or expired, and there are no samples.",
                advice,
            )
        return
    since = min(figures.tasks.values())
    if since > TASKS_LATE:
        yield Problem(
            Severity.WARNING,
            "tasks",
            None,
            f"No process has run side tasks for {wording.age(since)}: no message is swept, "
            "shovelled or expired.",
            advice,
        )
        return
    for task, every in TASK_EVERY.items():
        before = figures.tasks.get(task)
        if before is not None and before > max(3 * every, TASKS_LATE):
            yield Problem(
                Severity.NOTE,
                "task",
                None,
                f"No process has run the side task {task} for {wording.age(before)}.",
                f"Let one of the processes run the task {task}.",
            )


def _breakers(figures: Figures) -> Iterator[Problem]:
    for breaker in figures.breakers:
        which = f" for {breaker.value}" if breaker.value else ""
        yield Problem(
            Severity.WARNING,
            "breaker",
            None,
            f"Breaker {breaker.name} has been {breaker.state}{which} for "
            f"{wording.age(breaker.since)}: too many calls fail.",
            "Look at what the handler calls. ignis breakers shows the next probe.",
        )


def _jobs(figures: Figures) -> Iterator[Problem]:
    for job in figures.failed_jobs:
        error = f": {job.error}" if job.error else ""
        yield Problem(
            Severity.NOTE,
            "job",
            job.queue,
            f"The shovel {job.job} has failed{error}",
            "Start it again when the cause is gone. Ended jobs are forgotten after a week.",
        )


def _are(count: int | None) -> str:
    return "is" if count == 1 else "are"


def _wait(count: int | None) -> str:
    return "waits" if count == 1 else "wait"
