"""The twelve steps from a message's arrival to its delivery, recorded as they happen.

Each step is recorded where it happens; without an open trace, that costs one comparison. Source:
the twelve steps of Qpid's simple example; `docs/consumers.md` says which part of ignis takes each.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple


class Step(IntEnum):
    """The steps, in the order in which a message passes through them."""

    #: A message arrives on the queue, or may have become available: once a second, a pool looks.
    ARRIVED = 1
    #: The queue notifies an interested consumer.
    QUEUE_NOTIFIES_CONSUMER = 2
    #: The consumer notifies its target.
    CONSUMER_NOTIFIES_TARGET = 3
    #: The target notifies its session.
    TARGET_NOTIFIES_SESSION = 4
    #: The session notifies its connection.
    SESSION_NOTIFIES_CONNECTION = 5
    #: The connection schedules itself for work.
    CONNECTION_SCHEDULES_ITSELF = 6
    #: A thread begins the work of the connection.
    SCHEDULER_BEGINS_WORK = 7
    #: The connection visits its session.
    CONNECTION_VISITS_SESSION = 8
    #: The session visits its target.
    SESSION_VISITS_TARGET = 9
    #: The target visits its consumer.
    TARGET_VISITS_CONSUMER = 10
    #: The consumer pulls a message from the queue.
    CONSUMER_PULLS = 11
    #: The message is delivered.
    DELIVERED = 12


class TracedStep(NamedTuple):
    """One recorded step."""

    step: Step
    #: The name of the queue, consumer or worker that took the step.
    actor: str
    #: The name of the thread in which it was taken.
    thread: str


class Trace:
    """
    The steps that all threads of the process took while this trace was open.

    `str` of a trace is a numbered list, one line per step.
    """

    def __init__(self) -> None:
        #: The recorded steps, in order.
        self.taken: list[TracedStep] = []

    @property
    def steps(self) -> list[Step]:
        """The kinds of the recorded steps, in order."""
        return [taken.step for taken in self.taken]

    def __str__(self) -> str:
        return "\n".join(
            f"{taken.step:2}. {taken.actor}: {taken.step.name.replace('_', ' ').lower()} "
            f"[{taken.thread}]"
            for taken in self.taken
        )


_trace: Trace | None = None


@contextmanager
def tracing() -> Iterator[Trace]:
    """
    Record the steps of all consumers of this process: ``with tracing() as trace: …``.

    One trace can be open at a time; a second one takes the place of the first.

    Yields:
        The `Trace`, which grows until the block ends.
    """
    global _trace
    trace = _trace = Trace()
    try:
        yield trace
    finally:
        _trace = None


def record(step: Step, actor: str) -> None:
    """Add a step to the open trace, if there is one."""
    trace = _trace
    if trace is not None:
        trace.taken.append(TracedStep(step, actor, threading.current_thread().name))
