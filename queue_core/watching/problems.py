"""Problems and reasons: what the figures say that a person should look at. Pure functions.

A reason is what keeps messages of a queue from being handled. Most reasons are problems too; a
limit that does its work is not. The console, the command line and the metrics share this. The
thresholds are those of docs/monitoring/alerts.yml where there is an alert for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from statistics import fmean
from typing import NamedTuple

from queue_core.upkeep.tasks.registry import REGISTRY
from queue_core.watching.causes import Blocked, Holder, LimitState, OpenBreaker
from queue_core.watching.holders import placed, taking_back
from queue_core.watching.present import Figures, FigureSample, QueueFigures
from queue_core.watching.problem_kinds import Problem, Severity, problem, ranked, weighed
from queue_core.watching.space import Space
from queue_core.watching.wording import age, counted, number, rate, size

#: Seconds after which a message that still waits is a problem.
OLDEST_WANTED = 900.0
#: Seconds after which a message that was due to return is late.
RETRY_LATE = 60.0
#: Seconds without samples after which nobody runs side tasks.
TASKS_LATE = 600.0
#: Seconds for which messages may wait without a consumer, or a queue may grow.
PATIENCE = 180.0
#: Seconds before the end of a budget from which on it is a problem.
BUDGET_ENDS = 86_400.0
#: The share of a limit's rate from which on it is what holds messages back.
NEARLY = 0.9
#: The share of its `max_bytes` from which on a queue is full: few loads fit exactly.
FULL_BYTES = 0.95
#: The most queues of a shared limit that its problem names.
_USERS = 5
#: The shares of free space below which a disk is a problem, and a critical one.
LEAST_FREE, CRITICAL_FREE = 0.1, 0.05
#: Seconds of samples that say how fast a queue grows, and the fewest of them.
TREND_SECONDS, LEAST_SECONDS = 300.0, 120.0


def find(figures: Figures, oldest_wanted: float = OLDEST_WANTED) -> list[Problem]:
    """Return all problems, the worst first. *oldest_wanted*: the most seconds of waiting."""
    found = [each for queue in figures.queues for each in of_queue(queue, oldest_wanted)]
    return ranked([*found, *_of_store(figures)])


def of_queue(queue: QueueFigures, oldest_wanted: float = OLDEST_WANTED) -> list[Problem]:
    """Return the problems of one queue, the worst first."""
    found = [*_of_queue(queue), *_old(queue, oldest_wanted)]
    return ranked(each for each in found if each.severity is not None)


def why(
    queue: QueueFigures, blocked: Sequence[Blocked] = (), spaces: Sequence[Space] = ()
) -> list[Problem]:
    """
    Return why messages of a queue are not handled, or not fast enough; the weightiest reason first.

    *blocked*: the rules of the queue that hold back each message that waits. *spaces*: the disks.
    """
    found = [*_of_queue(queue), *(_blocked(queue, each) for each in blocked)]
    other = {each.kind for each in weighed(found)} - {"damaged", "full"}
    if not (other if queue.fired_per_s else other - {"behind"}):
        found += _untaken(queue)
    if "unconsumed" not in other:
        # The last rate may be that of a consumer that has gone since.
        found += _alone(queue)
    found = weighed([*found, *_spaces(spaces)])
    # Nothing else counts in a queue that was given up.
    return found[:1] if queue.state == "deactivated" else found


def _of_queue(queue: QueueFigures) -> Iterator[Problem]:
    rules: Sequence[Callable[[QueueFigures], Iterator[Problem]]] = (_deactivated, _damaged, _jobs)
    if queue.state != "deactivated":
        rules = (
            _damaged,
            _detached,
            _late,
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
            _growing,
            _jobs,
        )
    for rule in rules:
        yield from rule(queue)


def _old(queue: QueueFigures, wanted: float) -> Iterator[Problem]:
    """Yield that a message waits for too long, unless another problem says why."""
    if queue.longest_wait is None or queue.longest_wait <= wanted:
        return
    named = any(each.severity is not None for each in _unconsumed(queue))
    if not (queue.is_paused or queue.state == "deactivated" or named):
        text = f"A message has waited for {age(queue.longest_wait)}; the limit is {age(wanted)}."
        yield problem("old", queue.name, text, queue.waiting)


def _deactivated(queue: QueueFigures) -> Iterator[Problem]:
    left = (queue.waiting or 0) + (queue.sidelined or 0)
    text = "It was deactivated for good: it takes and gives no messages, and "
    text += f"{counted(left, 'message waits', 'messages wait')} in it."
    yield problem("deactivated", queue.name, text, left, only_explains=not left)


def _damaged(queue: QueueFigures) -> Iterator[Problem]:
    if queue.damaged:
        first, *others = [each.name for each in queue.quarantined] or ["a segment"]
        more = f" and {number(len(others))} more files are" if others else " is"
        unread = f"cannot be read, because {first}{more} missing, torn or altered."
        yield problem("damaged", queue.name, f"{counted(queue.damaged)} {unread}", queue.damaged)


def _detached(queue: QueueFigures) -> Iterator[Problem]:
    if queue.detached_for is not None:
        text = f"It was detached {age(queue.detached_for)} ago: it gets nothing more from the log."
        yield problem("detached", queue.name, text, queue.waiting)


def _late(queue: QueueFigures) -> Iterator[Problem]:
    if queue.lag is None or queue.detached_for is not None:
        return
    budget = queue.settings.budget
    left = queue.lag.headroom(budget)
    # Of a budget of less than two days, half.
    if left is not None and left < BUDGET_ENDS and queue.lag.used(budget) > 0.5:
        ends = "dropped" if queue.settings.when_late == "drop" else "detached"
        text = f"It is {age(queue.lag.seconds)} behind, with {size(queue.lag.bytes)}: by its "
        text += f"setting late, it will be {ends} in {age(left)}."
        yield problem("late", queue.name, text, queue.waiting)


def _paused(queue: QueueFigures) -> Iterator[Problem]:
    if not queue.is_paused:
        return
    text, advice, action = "The queue is paused, because its concurrency is 0.", None, "scale"
    if queue.paused_for is not None:
        who = queue.paused_by or "A person"
        text, action = f"{who} paused the queue {age(queue.paused_for)} ago.", "resume"
    else:
        advice = f"Scale it: ignis set {queue.name} concurrency=8."
    if queue.waiting is None or queue.waiting:
        text += f" {counted(queue.waiting, 'message waits', 'messages wait').capitalize()}."
    yield problem("paused", queue.name, text, queue.waiting, advice=advice, action=action)


def _breakers(queue: QueueFigures) -> Iterator[Problem]:
    for each in queue.causes.breakers:
        yield _breaker(each, queue.name, queue.waiting)


def _breaker(each: OpenBreaker, queue: str | None, waiting: int | None = None) -> Problem:
    if each.forced:
        text = f"{each.who or 'A person'} opened breaker {each.name} {age(each.since)} ago."
    else:
        text = f"Breaker {each.name} has been open for {age(each.since)}: no call has succeeded."
    advice = f"Leave it to itself when the reason is gone: ignis breaker auto {each.name}."
    return problem(
        "breaker",
        queue,
        text,
        waiting,
        advice=advice if each.forced else None,
        action="close_breaker",
        fields={"breaker": each.name},
    )


def _unconsumed(queue: QueueFigures) -> Iterator[Problem]:
    # Plain firings may take messages although no consumer is connected.
    if not queue.fired_per_s:
        yield from _alone(queue)


def _alone(queue: QueueFigures) -> Iterator[Problem]:
    if queue.consumers == 0 and queue.waiting and not queue.is_paused:
        waits = counted(queue.waiting, "message waits", "messages wait")
        text = f"No consumer is connected, and {waits}."
        brief = (queue.longest_wait or 0) < PATIENCE
        yield problem("unconsumed", queue.name, text, queue.waiting, only_explains=brief)


def _silent(queue: QueueFigures) -> Iterator[Problem]:
    for holder in queue.causes.silent:
        silent = f"has sent no heartbeat for {age(holder.silent_for)}."
        text = f"Consumer {placed(holder)} holds {counted(holder.held)}, and {silent}"
        yield _held("silent", queue, holder, "Start it again, or", text, holder.held)


def _stuck(queue: QueueFigures) -> Iterator[Problem]:
    text = f"{counted(queue.stuck, 'message has', 'messages have')} been in flight for longer than "
    text += f"the setting sweep_after, for up to {age(queue.stuck_for)}"
    holders = _holding_for(queue, queue.settings.sweep_after)
    if queue.stuck and holders:
        them = "it" if queue.stuck == 1 else "them"
        more = f" and {len(holders) - 1} more hold {them}." if holders[1:] else f" holds {them}."
        text += f": {placed(holders[0])}{more}"
        yield _held("stuck", queue, holders[0], "If its handler hangs,", text, queue.stuck)
    elif queue.stuck:
        yield problem("stuck", queue.name, f"{text}.", queue.stuck)


def _holding_for(queue: QueueFigures, least: float) -> list[Holder]:
    """Return the consumers that hold a message for some seconds, the longest first."""
    found = [each for each in queue.causes.holders if (each.held_for or 0) > least]
    return sorted(found, key=lambda each: -(each.held_for or 0))


def _held(
    kind: str, queue: QueueFigures, holder: Holder, if_so: str, text: str, concerned: int | None
) -> Problem:
    """Return a problem with the act that takes back what a consumer holds."""
    advice = f"{if_so} {taking_back(holder, queue.name)}."
    fields = {"all": "1", "consumer": holder.name}
    return problem(kind, queue.name, text, concerned, advice=advice, action="reload", fields=fields)


def _limits(queue: QueueFigures) -> Iterator[Problem]:
    for each in queue.causes.limits if queue.waiting else ():
        limit, text = each.limit, None
        if limit.in_flight is not None and each.in_flight >= limit.in_flight:
            text = f"{counted(each.in_flight, 'message is', 'messages are')} in flight; it gives "
            text += "more when one is settled."
            others = [name for name, count in each.shared_by if count and name != queue.name]
            who = f" ignis why {others[0]} says who holds its messages." if others else ""
            text += _users(each) + who
        elif limit.per_second is not None:
            fired = queue.fired_per_s or 0.0
            if not each.tokens:
                text = f"it gives more in {age(each.opens_in)}.{_users(each)}"
            elif fired >= NEARLY * limit.per_second:
                text = f"it hands out {rate(fired)}.{_users(each)}"
        if text is not None:
            yield problem("limit", queue.name, f"Its {limit} is reached: {text}", queue.waiting)


def _users(limit: LimitState) -> str:
    """Return a sentence about the queues that share a limit; nothing if none does."""
    if len(limit.shared_by) < 2:
        return ""
    shown = [f"{name} ({number(count)} in flight)" for name, count in limit.shared_by[:_USERS]]
    left = len(limit.shared_by) - len(shown)
    more = f" and {number(left)} more" if left else ""
    return f" These queues share it: {', '.join(shown)}{more}."


def _busy(queue: QueueFigures) -> Iterator[Problem]:
    long = [each for each in _holding_for(queue, PATIENCE) if each not in queue.causes.silent]
    if long and not queue.stuck:
        text = f"Consumer {placed(long[0])} holds {counted(long[0].held)}, "
        text += f"the first for {age(long[0].held_for)}."
        yield _held("busy", queue, long[0], "If its handler hangs,", text, long[0].held)
    elif queue.waiting and queue.consumers and queue.in_flight and queue.fired_per_s == 0:
        held = counted(queue.in_flight, "message is", "messages are")
        text = f"Nothing was handed out lately: {held} in flight."
        yield problem("busy", queue.name, text, queue.waiting)


def _untaken(queue: QueueFigures) -> Iterator[Problem]:
    """Yield that connected consumers leave messages, for a reason that the catalog has not."""
    wait = queue.longest_wait or 0
    if not (queue.waiting and queue.consumers and wait >= PATIENCE):
        return
    past = reversed(queue.samples if queue.fired_per_s == 0 else ())
    idle = [each.taken_at for each in takewhile(lambda each: each.fired_per_s == 0, past)]
    quiet = idle[0] - idle[-1] if idle else 0.0
    text = counted(queue.consumers, "consumer is", "consumers are")
    if quiet >= LEAST_SECONDS:
        text += f" connected, and none has taken a message for at least {age(quiet)}."
    else:
        text += f" connected, but a message has waited for {age(wait)}."
    yield problem("untaken", queue.name, text, queue.waiting)


def _pace(queue: QueueFigures) -> Iterator[Problem]:
    pace = pace_of(queue.samples, reads=queue.lag is not None)
    if pace is None or not queue.waiting or queue.is_paused:
        return
    less = pace.gives - pace.gets
    text = f"It gets {rate(pace.gets)} and hands out {rate(pace.gives)}"
    takes_long = queue.waiting > 60 * pace.gives
    if less > 0:
        # Neither a few messages nor a few firings tell how long it takes.
        if pace.flows and queue.waiting > 10 * pace.gives:
            empty = f"{text}: it will be empty in {age(queue.waiting / less)}."
            yield problem("draining", queue.name, empty, queue.waiting)
    # One load, or a backlog that is handed out in a minute and does not grow, says nothing.
    elif pace.lasts and (pace.grows or takes_long):
        grows = f", so it grows by {rate(-less)}" if less else ""
        # A backlog that is handed out within a minute is no problem.
        lasting = pace.grows and less < 0 and takes_long
        # Where nobody takes anything, another problem says why.
        named = any(_unconsumed(queue)) or bool(queue.causes.breakers)
        never = f"{text}{grows}: it will never be empty."
        only = named or not lasting
        yield problem("behind", queue.name, never, queue.waiting, only_explains=only)


def _full(queue: QueueFigures) -> Iterator[Problem]:
    settings, used, of = queue.settings, queue.used, None
    if settings.overflow == "ring" or settings.is_rendezvous or used is None:
        return
    if settings.max_size and used >= settings.max_size:
        of = f"{number(used)} of {number(settings.max_size)} messages"
    elif settings.max_bytes and queue.used_bytes >= FULL_BYTES * settings.max_bytes:
        of = f"{size(queue.used_bytes)} of {size(settings.max_bytes)}"
    if of is not None:
        what = "wait" if settings.overflow == "block" else "are refused"
        text = f"The queue is full: {of}. Loads {what}."
        yield problem("full", queue.name, text, queue.waiting)


def _sideline(queue: QueueFigures) -> Iterator[Problem]:
    if queue.overdue_for is not None and queue.overdue_for > RETRY_LATE:
        late = f"Messages of the sideline were due to return {age(queue.overdue_for)} ago"
        text = f"{late}, and no process has moved them."
        yield problem("overdue", queue.name, text, queue.retrying)
    due = queue.causes.next_due
    if not queue.waiting and queue.retrying and due is not None and due > 0:
        returns = "returns" if queue.retrying == 1 else "return"
        text = f"No message waits. {counted(queue.retrying)} of the sideline {returns} later"
        yield problem("later", queue.name, f"{text}, the first in {age(due)}.", queue.retrying)
    if queue.dead:
        are = "is" if queue.dead == 1 else "are"
        text = f"{counted(queue.dead)} in the sideline {are} not tried again."
        yield problem("dead", queue.name, text, queue.dead, fields={"force": "1"})


def _growing(queue: QueueFigures) -> Iterator[Problem]:
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
    text = f"The sideline grows: {grown}, and {ago}."
    yield problem("growing", queue.name, text, queue.sidelined)


def _jobs(queue: QueueFigures) -> Iterator[Problem]:
    for each in queue.jobs:
        error = f": {each.error}" if each.error else ""
        kind, text = "job", f"The shovel {each.job} has failed{error}."
        if not each.has_ended:
            error = error or ": no process that runs the side tasks of this queue has begun it"
            kind, text = "still", f"The redrive {each.job} does not move{error}."
        yield problem(kind, queue.name, text, fields={} if each.has_ended else {"job": each.job})


def _blocked(queue: QueueFigures, each: Blocked) -> Problem:
    """Return that a rule of the queue holds back each waiting message, whoever consumes it."""
    if each.rule == "group":
        text = f"Each message that waits is behind one of its {each.name} that is in flight or held"
    elif each.rule == "limits":
        text = f"Its {each.name} is reached for each value that waits"
    elif each.rule == "expires_at":
        text = "Each message that waits has expired"
    elif each.rule == "max_deliveries":
        text = f"Each message that waits was fired {each.name} times, its max_deliveries"
    else:
        text = f"Each message that waits is held by its {each.name}"
        if each.seconds is not None:
            text += f", the first for {age(each.seconds)} more"
    kinds = {"limits": "limit", "hold_until": "later", "expires_at": "expired"}
    kind = kinds.get(each.rule, each.rule)
    return problem(kind, queue.name, f"{text}.", queue.waiting)


def _of_store(figures: Figures) -> Iterator[Problem]:
    """Yield the problems of no single queue."""
    yield from (_breaker(each, None) for each in figures.breakers if not each.queues)
    yield from _spaces(figures.spaces)
    yield from _side_tasks(figures)


def _spaces(spaces: Sequence[Space]) -> Iterator[Problem]:
    for space in spaces:
        if space.free < LEAST_FREE * space.size:
            left = f"has {size(space.free)} of {size(space.size)} left"
            share = f"{100 * space.free / space.size:.1f} %"
            text = f"The disk of the {space.of}, {space.path}, {left} ({share}). Loads fail "
            found = problem("space", None, f"{text}when it is full.")
            is_critical = space.free < CRITICAL_FREE * space.size
            yield replace(found, severity=Severity.CRITICAL) if is_critical else found


def _side_tasks(figures: Figures) -> Iterator[Problem]:
    undone = "nothing is swept, expired, compacted or vacuumed"
    if not figures.tasks:
        if figures.queues:
            never = "No process has ever run the side tasks of the store"
            yield problem("tasks", None, f"{never}: {undone}, and there are no samples.")
        return
    since = min(figures.tasks.values())
    if since > TASKS_LATE:
        yield problem("tasks", None, f"No process has run side tasks for {age(since)}: {undone}.")
        return
    for name, task in REGISTRY.items():
        before = figures.tasks.get(name)
        if before is None or task.timing is None:
            continue
        if before > max(3 * task.timing.every, TASKS_LATE):
            text = f"No process has run the side task {name} for {age(before)}."
            yield problem("task", None, text)


class Pace(NamedTuple):
    """How fast a queue has got and handed out messages lately, per second."""

    gets: float
    gives: float
    #: Whether it has grown from each third of that time to the next.
    grows: bool
    #: Whether it got messages in both halves of that time, and handed them out.
    lasts: bool
    flows: bool


def pace_of(samples: Sequence[FigureSample], *, reads: bool) -> Pace | None:
    """Return the pace that samples show, also of one that *reads* a log; None: too short a time."""
    begin = samples[-1].taken_at - TREND_SECONDS if samples else 0.0
    recent = [each for each in samples if each.taken_at >= begin and each.loaded_per_s is not None]
    if len(recent) < 3 or recent[-1].taken_at - recent[0].taken_at < LEAST_SECONDS:
        return None
    third = len(recent) // 3
    parts = (recent[:third], recent[third:-third], recent[-third:])
    waiting = [fmean(each.waiting or 0 for each in part) for part in parts]
    gets = [(each.loaded_per_s or 0) + (each.returned_per_s or 0) for each in recent]
    gives = [each.fired_per_s or 0 for each in recent]
    if reads:
        # It loads what it takes in; what its log gets waits already.
        gets = [
            (b.fired_per_s or 0) + ((b.waiting or 0) - (a.waiting or 0)) / (b.taken_at - a.taken_at)
            for a, b in pairwise(recent)
        ]
    half = len(gets) // 2
    return Pace(
        max(fmean(gets), 0),
        fmean(gives),
        waiting[0] < waiting[1] < waiting[2],
        all(sum(part) > 0 for part in (gets[:half], gets[half:])),
        all(map(sum, (gives[:half], gives[half:]))),
    )
