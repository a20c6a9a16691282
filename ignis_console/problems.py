"""Problems: what the figures say that a person should look at. Pure functions.

The thresholds are those of docs/monitoring/alerts.yml where there is an alert for the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ignis_console.wording import age, messages, number
from queue_core.watching.present import Figures, QueueFigures

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


_CRITICAL, _WARNING, _NOTE = Severity
#: How bad each kind of problem is, and what a person can do.
_KINDS = {
    "old": (
        _WARNING,
        "Check that consumers run and keep up, or start more of them.",
    ),
    "overdue": (_WARNING, "Start a process that runs side tasks, or shovel by hand."),
    "growing": (_WARNING, "Start a process that runs side tasks, or shovel by hand."),
    "dead": (_WARNING, "Look at the reasons in the sideline; requeue or delete the messages."),
    "damaged": (
        _CRITICAL,
        "Copy the file from a backup, where it has the same path, then run ignis repair {queue}. "
        "ignis fsck says what is wrong with each file.",
    ),
    "stuck": (
        _WARNING,
        "Check that the consumers run. If they are dead, let a process run the task sweep, or "
        "sweep or reload the messages.",
    ),
    "full": (_WARNING, "Start more consumers, or raise the setting max_size."),
    "paused": (_NOTE, "Resume it when the reason is gone; at concurrency 0, scale it."),
    "silent": (_WARNING, "Start it again, or sweep or reload its messages."),
    "tasks": (
        _WARNING,
        "Start a query, a pool or a manager, or run ignis work: they run side tasks.",
    ),
    "task": (_NOTE, "Let one of the processes run this task."),
    "breaker": (_WARNING, "Look at what the handler calls. ignis breakers shows the next probe."),
    "job": (_NOTE, "Start it again when the cause is gone. Ended jobs are forgotten after a week."),
}


def find(figures: Figures, oldest_wanted: float) -> list[Problem]:
    """Return all problems, the worst first. *oldest_wanted*: the most seconds of waiting."""
    order = list(Severity)
    found = [each for queue in figures.queues for each in of_queue(queue, oldest_wanted)]
    found += [_problem(kind, queue, text) for kind, queue, text in _of_store(figures)]
    return sorted(found, key=lambda each: (order.index(each.severity), each.queue or ""))


def of_queue(queue: QueueFigures, oldest_wanted: float) -> Iterator[Problem]:
    """Yield the problems of one queue."""
    for rule in (_late, _growing, _lost, _full, _paused):
        for kind, text in rule(queue, oldest_wanted):
            yield _problem(kind, queue.name, text)


def _problem(kind: str, queue: str | None, text: str) -> Problem:
    severity, advice = _KINDS[kind]
    return Problem(severity, kind, queue, text, advice.format(queue=queue))


def _late(queue: QueueFigures, wanted: float) -> Iterator[tuple[str, str]]:
    if queue.longest_wait is not None and queue.longest_wait > wanted and not queue.is_paused:
        yield (
            "old",
            f"A message has waited for {age(queue.longest_wait)}; the limit is {age(wanted)}.",
        )
    if queue.overdue_for is not None and queue.overdue_for > RETRY_LATE:
        yield (
            "overdue",
            f"Messages of the sideline were due to return {age(queue.overdue_for)} ago, and no "
            "process has moved them.",
        )


def _growing(queue: QueueFigures, _: float) -> Iterator[tuple[str, str]]:
    past = [each.sidelined for each in queue.samples if each.sidelined is not None]
    grows = queue.sidelined is not None and past and queue.sidelined > past[0]
    if queue.retries or not grows:
        return
    if queue.shovel_interval is None:
        ago = "no shovel is planned"
    elif queue.shovelled_before is None:
        ago = "no process has ever run its shovel"
    elif queue.shovelled_before > 3 * queue.shovel_interval:
        ago = f"its shovel last ran {age(queue.shovelled_before)} ago"
    else:
        return
    grown = f"{number(past[0])} to {number(queue.sidelined)} in ten minutes"
    yield "growing", f"The sideline grows: {grown}, and {ago}."


def _lost(queue: QueueFigures, _: float) -> Iterator[tuple[str, str]]:
    if queue.dead:
        are = "is" if queue.dead == 1 else "are"
        yield "dead", f"{messages(queue.dead)} in the sideline {are} not tried again."
    if queue.damaged:
        first, *others = queue.damaged_files or ("a segment",)
        more = f" and {number(len(others))} more files are" if others else " is"
        unread = f"cannot be read, because {first}{more} missing, torn or altered."
        yield "damaged", f"{messages(queue.damaged)} {unread}"
    if queue.stuck:
        have = "has" if queue.stuck == 1 else "have"
        yield (
            "stuck",
            f"{messages(queue.stuck)} {have} been in flight for longer than the setting "
            f"sweep_after, for up to {age(queue.stuck_for)}.",
        )


def _full(queue: QueueFigures, _: float) -> Iterator[tuple[str, str]]:
    if not queue.max_size or queue.overflow == "ring":
        return
    if queue.waiting is not None and queue.waiting >= queue.max_size:
        what = "wait" if queue.overflow == "block" else "are refused"
        of = f"{number(queue.waiting)} of {number(queue.max_size)} messages"
        yield "full", f"The queue is full: {of}. Loads {what}."


def _paused(queue: QueueFigures, _: float) -> Iterator[tuple[str, str]]:
    if not queue.is_paused or queue.state == "deactivated":
        return
    text = "The queue is paused, because its concurrency is 0."
    if queue.paused_for is not None:
        text = f"A person paused the queue {age(queue.paused_for)} ago."
    if queue.waiting is None or queue.waiting:
        wait = "waits" if queue.waiting == 1 else "wait"
        text += f" {messages(queue.waiting).capitalize()} {wait}."
    yield "paused", text


def _of_store(figures: Figures) -> Iterator[tuple[str, str | None, str]]:
    """Yield the kind, the queue or None, and the text of each problem of no single queue."""
    for holder in figures.holders:
        if holder.silent_for is not None and holder.silent_for > DEAD_AFTER:
            silent = f"has sent no heartbeat for {age(holder.silent_for)}."
            text = f"Consumer {holder.name} holds {messages(holder.held)}, and {silent}"
            yield "silent", None, text
    for kind, text in _side_tasks(figures):
        yield kind, None, text
    for each in figures.breakers:
        state = f"has been {each.state} for {age(each.since)}"
        yield "breaker", None, f"Breaker {each.name} {state}: too many calls fail."
    for job in figures.failed_jobs:
        error = f": {job.error}" if job.error else ""
        yield "job", job.queue, f"The shovel {job.job} has failed{error}"


def _side_tasks(figures: Figures) -> Iterator[tuple[str, str]]:
    undone = "no message is swept, shovelled or expired"
    if not figures.tasks:
        if figures.queues:
            never = "No process has ever run the side tasks of the store"
            yield "tasks", f"{never}: {undone}, and there are no samples."
        return
    since = min(figures.tasks.values())
    if since > TASKS_LATE:
        yield "tasks", f"No process has run side tasks for {age(since)}: {undone}."
        return
    for task, every in TASK_EVERY.items():
        before = figures.tasks.get(task)
        if before is not None and before > max(3 * every, TASKS_LATE):
            yield "task", f"No process has run the side task {task} for {age(before)}."
