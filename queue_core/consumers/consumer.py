"""`QueueConsumer`: one consumer of one queue; when it is notified of work, it pulls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized
from enum import Enum
from math import inf
from typing import Generic, TypeVar

from queue_core.consumers.lists import Node
from queue_core.consumers.manager import QueueConsumerManager
from queue_core.consumers.trace import Step, record

#: The type of the work: one message or several; `len` returns how many.
Work = TypeVar("Work", bound=Sized)


class SuspendReason(Enum):
    """
    Why a consumer does not want work.

    Attributes:
        FLOW_CONTROL: Its pool or its client is paused.
        CREDIT: It has as many messages in flight as it may have.
        BACK_PRESSURE: Its process is overloaded.
    """

    FLOW_CONTROL = "flow control"
    CREDIT = "credit"
    BACK_PRESSURE = "back-pressure"


class QueueConsumer(Generic[Work]):
    """
    A consumer that wants work unless it is suspended, is notified of work, and pulls it.

    Source: Qpid.

    Args:
        name: Its name, in traces and in its repr.
        take: Takes up to a number of messages from the queue; returns None if there are none.
        notify: Called in any thread when there may be work. It must not wait.
        priority: The consumer with the higher priority goes first; a consumer without one precedes
            all.
        acquires: Whether it takes messages; False for a browser.
        selective: Whether it leaves messages to others that it does not select.
        busy: Returns whether to notify others first: 0 if its worker has nothing to do, 1 if it is
            at work, 2 if it is in a call.
    """

    def __init__(
        self,
        name: str,
        take: Callable[[int], Work | None],
        notify: Callable[[QueueConsumer[Work]], None],
        *,
        priority: int | None = None,
        acquires: bool = True,
        selective: bool = False,
        busy: Callable[[], int] = lambda: 0,
    ) -> None:
        self.name = name
        self.busy = busy
        self.take = take
        self.priority = priority
        self.acquires = acquires
        self.selective = selective
        #: How often it was notified.
        self.wakeups = 0
        #: The number of the arrival after which it found nothing.
        self.exhausted_at = -1
        #: Its node in the manager's lists, while it is registered.
        self.node: Node | None = None
        self._notify = notify
        #: The number of the arrival at its last pull, if that has left nothing.
        self._emptied_at: int | None = None
        self._suspended: set[SuspendReason] = set()
        self._lock = threading.Lock()
        self._manager: QueueConsumerManager | None = None

    @property
    def rank(self) -> float:
        """Its priority as a number that can be compared."""
        return inf if self.priority is None else self.priority

    @property
    def desires_work(self) -> bool:
        """Whether nothing suspends it."""
        return not self._suspended

    def join(self, manager: QueueConsumerManager) -> None:
        """Register with a queue."""
        self._manager = manager
        manager.add(self)

    def leave(self) -> None:
        """Unregister from the queue."""
        if self._manager is not None:
            self._manager.remove(self)

    def suspend(self, reason: SuspendReason) -> None:
        """Want no work until `resume` has been called for each reason."""
        self._set(reason, suspended=True)

    def resume(self, reason: SuspendReason) -> None:
        """Remove a reason to want no work."""
        self._set(reason, suspended=False)

    def follow(self, reason: SuspendReason, suspends: Callable[[], bool]) -> None:
        """Suspend or resume for a reason, as *suspends* says, which other threads may change."""
        done: bool | None = None
        # Again if it has changed since.
        while done != (wanted := suspends()):
            (self.suspend if wanted else self.resume)(reason)
            done = wanted

    def notify_work(self) -> None:
        """Pass on that there may be work; the queue's manager calls this."""
        self.wakeups += 1
        record(Step.CONSUMER_NOTIFIES_TARGET, self.name)
        self._notify(self)

    def pull(self, limit: int) -> Work | None:
        """
        Pull up to *limit* messages from the queue; None when there are none for this consumer.

        If there were *limit* messages, another consumer is notified of the rest, unless the work
        says that there is none (``more``).
        """
        record(Step.CONSUMER_PULLS, self.name)
        manager = self._joined
        self._emptied_at = None
        arrival = manager.begin_pull(self)
        if arrival is None:
            return None
        try:
            work = self.take(limit)
        except BaseException:
            manager.has_failed = True
            manager.found_nothing(self, arrival, for_all=False)
            raise
        if work is None or not len(work):
            manager.found_nothing(self, arrival, for_all=not self.selective)
            return None
        manager.found_some()
        record(Step.DELIVERED, self.name)
        if self.acquires and not getattr(work, "more", True):
            self._emptied_at = arrival
        elif self.acquires and len(work) >= limit:
            manager.found_more()
        return work

    def goes_on(self) -> bool:
        """Return whether to pull again after the work: not if the pull has left nothing."""
        arrival, self._emptied_at = self._emptied_at, None
        if arrival is not None:
            self._joined.found_nothing(self, arrival, for_all=not self.selective)
        return arrival is None

    @property
    def _joined(self) -> QueueConsumerManager:
        assert self._manager is not None, "a consumer joins a queue before it pulls"
        return self._manager

    def _set(self, reason: SuspendReason, *, suspended: bool) -> None:
        with self._lock:
            desired_before = not self._suspended
            (self._suspended.add if suspended else self._suspended.discard)(reason)
            desired = not self._suspended
        if desired != desired_before and self._manager is not None:
            # The manager reads `desires_work` again: another thread may have changed it since.
            self._manager.set_notify_work_desired(self, desired)

    def __repr__(self) -> str:
        state = self.node.state.value if self.node else "not registered"
        reasons = ", ".join(sorted(reason.value for reason in self._suspended))
        suspended = f", suspended by {reasons}" if reasons else ""
        return f"<QueueConsumer {self.name!r}, {state}{suspended}>"
