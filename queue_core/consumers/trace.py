"""The way of one message from its arrival to its delivery, step by step, as it is really gone.

Whoever takes a step says so here; unless somebody traces, that costs a glance. Source: Qpid, the
twelve steps of its simple example; `docs/consumers.md` says who takes each of them in ignis.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple


class Step(IntEnum):
    """What happens, in this order."""

    ARRIVED = 1
    QUEUE_NOTIFIES_CONSUMER = 2
    CONSUMER_NOTIFIES_TARGET = 3
    TARGET_NOTIFIES_SESSION = 4
    SESSION_NOTIFIES_CONNECTION = 5
    CONNECTION_SCHEDULES_ITSELF = 6
    SCHEDULER_BEGINS_WORK = 7
    CONNECTION_VISITS_SESSION = 8
    SESSION_VISITS_TARGET = 9
    TARGET_VISITS_CONSUMER = 10
    CONSUMER_PULLS = 11
    DELIVERED = 12


class TracedStep(NamedTuple):
    """A step that was taken."""

    step: Step
    #: Who took it, by name.
    who: str
    #: In which thread.
    thread: str


class Trace:
    """The steps that were taken while this was traced, by all threads of the process."""

    def __init__(self) -> None:
        self.taken: list[TracedStep] = []

    @property
    def steps(self) -> list[Step]:
        """What happened, in order."""
        return [taken.step for taken in self.taken]

    def __str__(self) -> str:
        return "\n".join(
            f"{taken.step:2}. {taken.who}: {taken.step.name.replace('_', ' ').lower()} "
            f"[{taken.thread}]"
            for taken in self.taken
        )


_trace: Trace | None = None


@contextmanager
def tracing() -> Iterator[Trace]:
    """Trace all consumers of this process; one at a time."""
    global _trace
    trace = _trace = Trace()
    try:
        yield trace
    finally:
        _trace = None


def say(step: Step, who: str) -> None:
    """Somebody takes a step."""
    trace = _trace
    if trace is not None:
        trace.taken.append(TracedStep(step, who, threading.current_thread().name))
