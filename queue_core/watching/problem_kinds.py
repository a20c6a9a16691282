"""The kinds of problems: how bad each is, and what a person can do; and problems by their kinds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from queue_core.watching.wording import TOO_OLD


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
        return KINDS[self.kind].advice.format(queue="QUEUE", name="NAME")


class Kind(NamedTuple):
    """What all problems of a kind have."""

    severity: Severity | None
    title: str
    advice: str
    #: The action that cures it.
    action: str | None = None
    #: Whether it says why messages are not handled.
    explains: bool = True


_CRITICAL, _WARNING, _NOTE = Severity
#: Each kind by its name. Reasons are in the order of their weight.
KINDS = {
    "deactivated": Kind(
        _NOTE,
        "Deactivated queues with messages",
        "Look at the messages with ignis peek {queue}; ignis drop {queue} removes them.",
    ),
    "damaged": Kind(
        _CRITICAL,
        "Damaged messages",
        "Copy the file from a backup, where it has the same path, then run ignis repair {queue}. "
        "ignis fsck says what is wrong with each file.",
        "repair",
    ),
    "detached": Kind(
        _WARNING,
        "Detached subscriptions",
        'Attach it: store.queue("{queue}").admin.attach(), and start its consumers; or drop it.',
    ),
    "paused": Kind(
        _NOTE, "Paused queues", "Resume it when the reason is gone: ignis resume {queue}.", "resume"
    ),
    "breaker": Kind(
        _WARNING,
        "Open breakers",
        "Look at what the handler calls. ignis breakers shows the next probe.",
    ),
    "unconsumed": Kind(
        _WARNING,
        "Queues without a consumer",
        "Start a pool or a query of the queue, such as: ignis work HANDLER --queue {queue}.",
    ),
    "silent": Kind(
        _WARNING,
        "Consumers without a sign of life",
        "Start it again, or take its messages back: ignis why {queue} says how.",
        "sweep",
    ),
    "stuck": Kind(
        _WARNING,
        "Messages that are stuck in flight",
        "Check that the consumers run. If they are dead, let a process run the task sweep; ignis "
        "why {queue} says how to take the messages back.",
        "sweep",
    ),
    "limit": Kind(None, "Limits", "ignis set {queue} limits=… changes the limit."),
    "group": Kind(None, "Groups", "Look at the messages in flight: ignis slices {queue}."),
    "expired": Kind(
        None,
        "Expired messages",
        "The task expire removes them. To keep those that are too old, set message_expiry longer "
        "or none.",
    ),
    "max_deliveries": Kind(
        None,
        "Messages that were fired too often",
        "The next sweep moves them to the sideline: ignis sweep. To fire them again, raise it: "
        "ignis set {queue} max_deliveries=…",
    ),
    "later": Kind(
        None,
        "Messages that are due later",
        "Nothing needs to be done before then. Messages that expire before are not handled.",
    ),
    "busy": Kind(
        None, "Busy consumers", "ignis slices {queue} shows who holds messages, and since when."
    ),
    "untaken": Kind(
        None,
        "Messages that no consumer takes",
        "The selector or the limits of a consumer, which the catalog does not know, or its handler "
        "may be the reason. ignis consumers shows where each runs.",
    ),
    "behind": Kind(
        _WARNING,
        "Queues that get more than they hand out",
        "Start more consumers, give a pool more workers (its own concurrency), scale the queue, or "
        "raise a limit that is reached.",
        "scale",
    ),
    "full": Kind(
        _WARNING,
        "Full queues",
        "Start a consumer or more of them, give a pool more workers (its own concurrency), or "
        "raise the setting max_size or max_bytes.",
    ),
    "overdue": Kind(
        _WARNING,
        "Sidelines that are late",
        "Start a process that runs side tasks, or shovel by hand.",
        "redrive",
    ),
    "draining": Kind(None, "Queues that become empty", "Scale the queue if that is too late."),
    "old": Kind(
        _WARNING,
        "Old messages",
        "Check that consumers run and keep up, or start more of them.",
        "scale",
        explains=False,
    ),
    "growing": Kind(
        _WARNING,
        "Sidelines that grow",
        "Start a process that runs side tasks, or shovel by hand.",
        "redrive",
        explains=False,
    ),
    "dead": Kind(
        _WARNING,
        "Dead messages",
        "Look at the reasons in the sideline; requeue or delete the messages. If they would "
        f"expire in main, {TOO_OLD}.",
        "redrive",
        explains=False,
    ),
    "job": Kind(
        _NOTE,
        "Failed jobs",
        "Start it again when the cause is gone. Ended jobs are forgotten after a week.",
        "redrive",
        explains=False,
    ),
    "still": Kind(
        _WARNING,
        "Redrives that do not move",
        "Make room, or start a process that runs side tasks. ignis cancel ends it.",
        "cancel",
        explains=False,
    ),
    "late": Kind(
        _WARNING,
        "Subscriptions that are nearly too late",
        "Start more consumers, or raise its setting late.",
        "scale",
        explains=False,
    ),
    "space": Kind(
        _WARNING,
        "Disks that are nearly full",
        "Make room: ignis vacuum --grace 0 removes files that no message needs.",
    ),
    "tasks": Kind(
        _WARNING,
        "No side tasks",
        "Start a query, a pool or a manager, or run ignis work: they run side tasks.",
    ),
    "task": Kind(_NOTE, "Late side tasks", "Let one of the processes run this task."),
}


def problem(
    kind: str,
    queue: str | None,
    text: str,
    messages: int | None = None,
    *,
    advice: str | None = None,
    action: str | None = None,
    fields: Mapping[str, str] = {},
    only_explains: bool = False,
) -> Problem:
    """Return a problem with what its kind has; *only_explains*: it is a reason, and no problem."""
    of_kind = KINDS[kind]
    return Problem(
        None if only_explains else of_kind.severity,
        kind,
        queue,
        text,
        advice or of_kind.advice.format(queue=queue),
        messages,
        None if queue is None else action or of_kind.action,
        fields,
    )


def ranked(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems, the worst and those of the most messages first."""

    def rank(each: Problem) -> tuple[int, int, str, str]:
        return _badness(each.severity), -(each.messages or 0), each.queue or "", each.kind

    return sorted(problems, key=rank)


def weighed(reasons: Iterable[Problem]) -> list[Problem]:
    """Return those that say why messages are not handled, the weightiest first."""
    found = [each for each in reasons if KINDS[each.kind].explains]
    order = list(KINDS)
    return sorted(found, key=lambda each: order.index(each.kind))


def grouped(problems: Iterable[Problem]) -> list[ProblemGroup]:
    """Return problems by their kinds: by severity, then those of the most messages first."""
    kinds: dict[str, list[Problem]] = defaultdict(list)
    for each in ranked(problems):
        kinds[each.kind].append(each)
    groups = [
        ProblemGroup(
            found[0].severity,
            kind,
            KINDS[kind].title,
            len(found),
            len({each.queue for each in found} - {None}),
            sum(each.messages or 0 for each in found),
            tuple(found),
        )
        for kind, found in kinds.items()
    ]
    return sorted(groups, key=lambda each: (_badness(each.severity), -each.messages, each.kind))


def _badness(severity: Severity | None) -> int:
    return len(Severity) if severity is None else list(Severity).index(severity)
