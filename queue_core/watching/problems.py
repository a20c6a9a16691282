"""Problems and reasons: what the figures say that a person should look at. Pure functions.

A reason is what keeps messages of a queue from being handled. Most reasons are problems too; a
limit that does its work is none. The console, the command line and the metrics share this. The
thresholds are those of docs/monitoring/alerts.yml where there is an alert for the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from queue_core.upkeep.tasks.registry import REGISTRY
from queue_core.watching.causes import Blocked, OpenBreaker
from queue_core.watching.present import FailedJob, Figures, FigureSample, QueueFigures
from queue_core.watching.wording import age, messages, number, rate, size

#: Seconds after which a message that still waits is a problem.
OLDEST_WANTED = 900.0
#: Seconds after which a message that was due to return is late.
RETRY_LATE = 60.0
#: Seconds without samples after which nobody runs side tasks.
TASKS_LATE = 600.0
#: Seconds for which messages may wait without a consumer, or a queue may grow.
PATIENCE = 180.0
#: Seconds of samples that say how fast a queue grows, and the fewest of them.
TREND_SECONDS, LEAST_SECONDS = 300.0, 120.0
#: The share of a limit's rate from which on it is what holds messages back.
NEARLY = 0.9
#: The share of free space below which a disk is a problem.
LEAST_FREE = 0.1


class Severity(StrEnum):
    """How bad a problem is."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, or one reason."""

    #: None: it is a reason, and no problem.
    severity: Severity | None
    #: One word for the rule, such as ``old``.
    kind: str
    #: The queue, or None for the store.
    queue: str | None
    #: What is wrong, with figures.
    text: str
    #: What a person can do.
    advice: str
    #: The messages that it concerns; None: it is not known, or it concerns none.
    messages: int | None = None
    #: The action of the console that cures it, with its fields; None: there is none.
    action: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProblemGroup:
    """The problems of one kind."""

    severity: Severity | None
    kind: str
    title: str
    #: How many there are, of how many queues, and how many messages they concern.
    count: int
    queues: int
    messages: int
    #: Those with the most messages first.
    problems: tuple[Problem, ...]

    @property
    def advice(self) -> str:
        """What a person can do about all of them."""
        if len({each.advice for each in self.problems}) == 1:
            return self.problems[0].advice
        return _KINDS[self.kind].advice.format(queue="QUEUE", name="NAME")


class _Kind(NamedTuple):
    severity: Severity | None
    title: str
    advice: str
    #: The action that cures it.
    action: str | None = None
    #: Whether it says why messages are not handled.
    explains: bool = True


class _Found(NamedTuple):
    """What a rule has found."""

    kind: str
    text: str
    messages: int | None = None
    #: In place of those of its kind.
    advice: str | None = None
    action: str | None = None
    fields: Mapping[str, str] = {}
    #: Whether it is a reason only.
    only_explains: bool = False


_CRITICAL, _WARNING, _NOTE = Severity
#: Each kind: how bad it is, and what a person can do. Reasons are in the order of their weight.
_KINDS = {
    "deactivated": _Kind(
        _NOTE,
        "Deactivated queues with messages",
        "Look at the messages with ignis peek {queue}; ignis drop {queue} removes them.",
    ),
    "damaged": _Kind(
        _CRITICAL,
        "Damaged messages",
        "Copy the file from a backup, where it has the same path, then run ignis repair {queue}. "
        "ignis fsck says what is wrong with each file.",
        "repair",
    ),
    "paused": _Kind(
        _NOTE, "Paused queues", "Resume it when the reason is gone: ignis resume {queue}.", "resume"
    ),
    "breaker": _Kind(
        _WARNING,
        "Open breakers",
        "Look at what the handler calls. ignis breakers shows the next probe.",
    ),
    "unconsumed": _Kind(
        _WARNING,
        "Queues without a consumer",
        "Start a pool or a query of the queue, such as: ignis work HANDLER --queue {queue}.",
    ),
    "silent": _Kind(
        _WARNING,
        "Consumers without a sign of life",
        "Start it again, or sweep or reload its messages.",
        "sweep",
    ),
    "stuck": _Kind(
        _WARNING,
        "Messages that are stuck in flight",
        "Check that the consumers run. If they are dead, let a process run the task sweep, or "
        "sweep or reload the messages.",
        "sweep",
    ),
    "limit": _Kind(None, "Limits", "ignis set {queue} limits=… changes the limit."),
    "group": _Kind(None, "Groups", "Look at the messages in flight: ignis slices {queue}."),
    "later": _Kind(None, "Messages of later", "Nothing is to be done before that time."),
    "busy": _Kind(
        None, "Busy consumers", "ignis slices {queue} shows who holds messages, and since when."
    ),
    "behind": _Kind(
        _WARNING,
        "Queues that get more than they hand out",
        "Start more consumers, or scale the queue.",
        "scale",
    ),
    "full": _Kind(
        _WARNING, "Full queues", "Start more consumers, or raise the setting max_size.", "scale"
    ),
    "overdue": _Kind(
        _WARNING,
        "Sidelines that are late",
        "Start a process that runs side tasks, or shovel by hand.",
        "redrive",
    ),
    "draining": _Kind(None, "Queues that become empty", "Scale the queue if that is too late."),
    "old": _Kind(
        _WARNING,
        "Old messages",
        "Check that consumers run and keep up, or start more of them.",
        "scale",
        explains=False,
    ),
    "growing": _Kind(
        _WARNING,
        "Sidelines that grow",
        "Start a process that runs side tasks, or shovel by hand.",
        "redrive",
        explains=False,
    ),
    "dead": _Kind(
        _WARNING,
        "Dead messages",
        "Look at the reasons in the sideline; requeue or delete the messages.",
        "redrive",
        explains=False,
    ),
    "job": _Kind(
        _NOTE,
        "Failed jobs",
        "Start it again when the cause is gone. Ended jobs are forgotten after a week.",
        "redrive",
        explains=False,
    ),
    "space": _Kind(
        _WARNING,
        "Disks that are nearly full",
        "Make room: ignis vacuum --grace 0 removes files that no message needs.",
    ),
    "tasks": _Kind(
        _WARNING,
        "No side tasks",
        "Start a query, a pool or a manager, or run ignis work: they run side tasks.",
    ),
    "task": _Kind(_NOTE, "Late side tasks", "Let one of the processes run this task."),
}
_ORDER = {kind: place for place, kind in enumerate(_KINDS)}


def find(figures: Figures, oldest_wanted: float = OLDEST_WANTED) -> list[Problem]:
    """Return all problems, the worst first. *oldest_wanted*: the most seconds of waiting."""
    found = [each for queue in figures.queues for each in of_queue(queue, oldest_wanted)]
    found += [_problem(None, each) for each in _of_store(figures)]
    found += [_problem(job.queue, _failed(job)) for job in figures.failed_jobs]
    return sorted(found, key=_rank)


def of_queue(queue: QueueFigures, oldest_wanted: float = OLDEST_WANTED) -> list[Problem]:
    """Return the problems of one queue, the worst first."""
    found = [each for each in _of_queue(queue, oldest_wanted) if each.severity is not None]
    return sorted(found, key=_rank)


def why(queue: QueueFigures, blocked: Sequence[Blocked] = ()) -> list[Problem]:
    """
    Return why messages of a queue are not handled, or not fast enough; the weightiest reason first.

    *blocked*: the rules of the queue that hold back each message that waits.
    """
    found = [each for each in _of_queue(queue, OLDEST_WANTED) if _KINDS[each.kind].explains]
    found += [_problem(queue.name, _blocked(queue, each)) for each in blocked]
    found.sort(key=lambda each: _ORDER[each.kind])
    # Nothing else counts in a queue that was given up.
    return found[:1] if queue.state == "deactivated" else found


def grouped(problems: Iterable[Problem]) -> list[ProblemGroup]:
    """Return problems by their kinds: by severity, then those of the most messages first."""
    kinds: dict[str, list[Problem]] = defaultdict(list)
    for each in problems:
        kinds[each.kind].append(each)
    groups = [
        ProblemGroup(
            min((each.severity for each in found), key=_severity),
            kind,
            _KINDS[kind].title,
            len(found),
            len({each.queue for each in found} - {None}),
            sum(each.messages or 0 for each in found),
            tuple(sorted(found, key=_rank)),
        )
        for kind, found in kinds.items()
    ]
    return sorted(groups, key=lambda each: (_severity(each.severity), -each.messages, each.kind))


def _rank(problem: Problem) -> tuple[int, int, str, str]:
    known = problem.messages or 0
    return _severity(problem.severity), -known, problem.queue or "", problem.kind


def _severity(severity: Severity | None) -> int:
    return len(Severity) if severity is None else list(Severity).index(severity)


def _problem(queue: str | None, found: _Found) -> Problem:
    kind = _KINDS[found.kind]
    return Problem(
        None if found.only_explains else kind.severity,
        found.kind,
        queue,
        found.text,
        found.advice or kind.advice.format(queue=queue),
        found.messages,
        None if queue is None else found.action or kind.action,
        found.fields,
    )


def _of_queue(queue: QueueFigures, oldest_wanted: float) -> Iterator[Problem]:
    for found in _deactivated(queue) if queue.state == "deactivated" else _in_use(queue):
        yield _problem(queue.name, found)
    if _is_late(queue, oldest_wanted):
        waited = age(queue.longest_wait)
        text = f"A message has waited for {waited}; the limit is {age(oldest_wanted)}."
        yield _problem(queue.name, _Found("old", text, queue.waiting))


def _deactivated(queue: QueueFigures) -> Iterator[_Found]:
    left = (queue.waiting or 0) + (queue.sidelined or 0)
    text = f"It was deactivated for good: it takes and gives no messages, and {messages(left)}"
    text += " wait in it." if left != 1 else " waits in it."
    yield _Found("deactivated", text, left, only_explains=not left)
    yield from _damaged(queue)


def _in_use(queue: QueueFigures) -> Iterator[_Found]:
    for rule in (
        _damaged,
        _paused,
        _breakers,
        _unconsumed,
        _silent,
        _stuck,
        _limits,
        _busy,
        _pace,
        _full,
        _sideline,
    ):
        yield from rule(queue)


def _is_late(queue: QueueFigures, wanted: float) -> bool:
    """Return whether a message waits for too long, and nothing that is a problem says why."""
    is_old = queue.longest_wait is not None and queue.longest_wait > wanted
    named = any(not each.only_explains for each in _unconsumed(queue))
    explained = queue.is_paused or queue.state == "deactivated" or named
    return is_old and not explained


def _damaged(queue: QueueFigures) -> Iterator[_Found]:
    if queue.damaged:
        first, *others = [each.name for each in queue.quarantined] or ["a segment"]
        more = f" and {number(len(others))} more files are" if others else " is"
        unread = f"cannot be read, because {first}{more} missing, torn or altered."
        yield _Found("damaged", f"{messages(queue.damaged)} {unread}", queue.damaged)


def _paused(queue: QueueFigures) -> Iterator[_Found]:
    if not queue.is_paused:
        return
    text, advice, action = "The queue is paused, because its concurrency is 0.", None, "scale"
    if queue.paused_for is not None:
        who = queue.paused_by or "A person"
        text, action = f"{who} paused the queue {age(queue.paused_for)} ago.", "resume"
    else:
        advice = f"Scale it: ignis set {queue.name} concurrency=8."
    if queue.waiting is None or queue.waiting:
        wait = "waits" if queue.waiting == 1 else "wait"
        text += f" {messages(queue.waiting).capitalize()} {wait}."
    yield _Found("paused", text, queue.waiting, advice, action)


def _breakers(queue: QueueFigures) -> Iterator[_Found]:
    for each in queue.causes.breakers:
        yield _breaker(each, queue.waiting)


def _breaker(each: OpenBreaker, waiting: int | None) -> _Found:
    text = f"Breaker {each.name} has been open for {age(each.since)}"
    text += f": {each.who or 'a person'} opened it." if each.forced else ": too many calls fail."
    advice = f"Leave it to itself when the reason is gone: ignis breaker auto {each.name}."
    return _Found(
        "breaker",
        text,
        waiting,
        advice if each.forced else None,
        "close_breaker",
        {"breaker": each.name},
    )


def _unconsumed(queue: QueueFigures) -> Iterator[_Found]:
    if queue.consumers != 0 or not queue.waiting or queue.is_paused or queue.fired_per_s:
        return
    text = f"No consumer is connected, and {messages(queue.waiting)} wait"
    text += "." if queue.waiting != 1 else "s."
    brief = (queue.longest_wait or 0) < PATIENCE
    yield _Found("unconsumed", text, queue.waiting, only_explains=brief)


def _silent(queue: QueueFigures) -> Iterator[_Found]:
    for holder in queue.causes.silent:
        silent = f"has sent no heartbeat for {age(holder.silent_for)}."
        text = f"Consumer {holder.name} holds {messages(holder.held)}, and {silent}"
        yield _Found("silent", text, holder.held)


def _stuck(queue: QueueFigures) -> Iterator[_Found]:
    if queue.stuck:
        have = "has" if queue.stuck == 1 else "have"
        yield _Found(
            "stuck",
            f"{messages(queue.stuck)} {have} been in flight for longer than the setting "
            f"sweep_after, for up to {age(queue.stuck_for)}.",
            queue.stuck,
        )


def _limits(queue: QueueFigures) -> Iterator[_Found]:
    for each in queue.causes.limits if queue.waiting else ():
        limit, text = each.limit, None
        if limit.in_flight is not None and each.in_flight >= limit.in_flight:
            text = f"{messages(each.in_flight)} are in flight; it gives more when one is settled."
        elif limit.per_second is not None:
            fired = queue.fired_per_s or 0.0
            if not each.tokens:
                text = f"it gives more in {age(each.opens_in)}."
            elif fired >= NEARLY * limit.per_second:
                text = f"it hands out {rate(fired)}."
        if text is not None:
            yield _Found("limit", f"Its {limit} is reached: {text}", queue.waiting)


def _busy(queue: QueueFigures) -> Iterator[_Found]:
    if queue.waiting and queue.consumers and queue.in_flight and queue.fired_per_s == 0:
        are = "is" if queue.in_flight == 1 else "are"
        text = f"Nothing was handed out lately: {messages(queue.in_flight)} {are} in flight."
        yield _Found("busy", text, queue.waiting)


class _Pace(NamedTuple):
    """How fast a queue has got and handed out messages lately, per second."""

    gets: float
    gives: float
    #: Whether it has grown from each third of that time to the next.
    grows: bool


def _pace_of(samples: Sequence[FigureSample]) -> _Pace | None:
    """Return the pace that samples show; None if they are of too short a time."""
    begin = samples[-1].taken_at - TREND_SECONDS if samples else 0.0
    recent = [each for each in samples if each.taken_at >= begin and each.loaded_per_s is not None]
    if len(recent) < 3 or recent[-1].taken_at - recent[0].taken_at < LEAST_SECONDS:
        return None
    third = len(recent) // 3
    parts = (recent[:third], recent[third:-third], recent[-third:])
    waiting = [fmean(each.waiting or 0 for each in part) for part in parts]
    return _Pace(
        fmean((each.loaded_per_s or 0) + (each.returned_per_s or 0) for each in recent),
        fmean(each.fired_per_s or 0 for each in recent),
        waiting[0] < waiting[1] < waiting[2],
    )


def _pace(queue: QueueFigures) -> Iterator[_Found]:
    pace = _pace_of(queue.samples)
    if pace is None or not queue.waiting or queue.is_paused:
        return
    less = pace.gives - pace.gets
    text = f"It gets {rate(pace.gets)} and hands out {rate(pace.gives)}"
    if less > 0:
        if queue.waiting > less:
            empty = f"{text}: it will be empty in {age(queue.waiting / less)}."
            yield _Found("draining", empty, queue.waiting)
    elif pace.gets:
        grows = f", so it grows by {rate(-less)}" if less else ""
        # As many wait as are handed out in a minute, so that a short backlog is none.
        lasting = pace.grows and less < 0 and queue.waiting > 60 * pace.gives
        never = f"{text}{grows}: it will never be empty."
        # The reason is another one where nobody takes anything.
        named = any(_unconsumed(queue)) or queue.causes.breakers
        yield _Found("behind", never, queue.waiting, only_explains=not lasting or bool(named))


def _full(queue: QueueFigures) -> Iterator[_Found]:
    most, overflow = queue.settings.max_size, queue.settings.overflow
    if most and overflow != "ring" and queue.waiting is not None and queue.waiting >= most:
        what = "wait" if overflow == "block" else "are refused"
        of = f"{number(queue.waiting)} of {number(most)} messages"
        yield _Found("full", f"The queue is full: {of}. Loads {what}.", queue.waiting)


def _sideline(queue: QueueFigures) -> Iterator[_Found]:
    if queue.overdue_for is not None and queue.overdue_for > RETRY_LATE:
        late = f"Messages of the sideline were due to return {age(queue.overdue_for)} ago"
        yield _Found("overdue", f"{late}, and no process has moved them.", queue.retrying)
    due = queue.causes.next_due
    if not queue.waiting and queue.retrying and due is not None and due > 0:
        return_ = "returns" if queue.retrying == 1 else "return"
        text = f"No message waits. {messages(queue.retrying)} of the sideline {return_} later"
        yield _Found("later", f"{text}, the first in {age(due)}.", queue.retrying)
    if queue.dead:
        are = "is" if queue.dead == 1 else "are"
        text = f"{messages(queue.dead)} in the sideline {are} not tried again."
        yield _Found("dead", text, queue.dead, fields={"force": "1"})
    yield from _growing(queue)


def _growing(queue: QueueFigures) -> Iterator[_Found]:
    past = [each.sidelined for each in queue.samples if each.sidelined is not None]
    grows = queue.sidelined is not None and past and queue.sidelined > past[0]
    interval = queue.settings.shovel_interval
    if queue.settings.retry is not None or not grows:
        return
    if interval is None:
        ago = "no shovel is planned"
    elif queue.shovelled_before is None:
        ago = "no process has ever run its shovel"
    elif queue.shovelled_before > 3 * interval:
        ago = f"its shovel last ran {age(queue.shovelled_before)} ago"
    else:
        return
    grown = f"{number(past[0])} to {number(queue.sidelined)} in ten minutes"
    yield _Found("growing", f"The sideline grows: {grown}, and {ago}.", queue.sidelined)


def _blocked(queue: QueueFigures, each: Blocked) -> _Found:
    """Return what a rule of the queue holds back, which has waited before all consumers."""
    if each.rule == "group":
        text = f"Each message that waits is behind one of its {each.name} that is in flight or held"
    elif each.rule == "limits":
        text = f"Its {each.name} is reached for each value that waits"
    else:
        text = f"Each message that waits is held by its {each.name}"
        if each.seconds is not None:
            text += f", the first for {age(each.seconds)} more"
    kind = {"group": "group", "limits": "limit"}.get(each.rule, "later")
    return _Found(kind, f"{text}.", queue.waiting)


def _failed(job: FailedJob) -> _Found:
    error = f": {job.error}" if job.error else ""
    return _Found("job", f"The shovel {job.job} has failed{error}")


def _of_store(figures: Figures) -> Iterator[_Found]:
    """Yield the problems of no single queue."""
    yield from (_breaker(each, None) for each in figures.breakers if not each.queues)
    for space in figures.spaces:
        if space.free < LEAST_FREE * space.size:
            left = f"has {size(space.free)} of {size(space.size)} left"
            share = f"{100 * space.free / space.size:.1f} %"
            yield _Found("space", f"The disk of the {space.of}, {space.path}, {left} ({share}).")
    yield from _side_tasks(figures)


def _side_tasks(figures: Figures) -> Iterator[_Found]:
    undone = "no message is swept, shovelled or expired"
    if not figures.tasks:
        if figures.queues:
            never = "No process has ever run the side tasks of the store"
            yield _Found("tasks", f"{never}: {undone}, and there are no samples.")
        return
    since = min(figures.tasks.values())
    if since > TASKS_LATE:
        yield _Found("tasks", f"No process has run side tasks for {age(since)}: {undone}.")
        return
    for name, task in REGISTRY.items():
        before = figures.tasks.get(name)
        if before is None or task.timing is None:
            continue
        if before > max(3 * task.timing.every, TASKS_LATE):
            yield _Found("task", f"No process has run the side task {name} for {age(before)}.")
