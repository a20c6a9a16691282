"""`QueueConsumer`: one consumer of one queue, as the queue's manager knows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from queue_core.consumers.trace import Step, say

if TYPE_CHECKING:
    from queue_core.consumers.lists import Node
    from queue_core.consumers.manager import QueueConsumerManager

#: What a consumer is given: one message or many, so that one can see how many.
Work: TypeAlias = Sized


class Hold(Enum):
    """Why a consumer does not want work."""

    #: It was told to pause.
    FLOW = "flow control"
    #: It has as many messages in flight as it may have.
    CREDIT = "credit"
    #: Its process cannot take more.
    PRESSURE = "back-pressure"


class QueueConsumer:
    """
    Wants work, unless something holds it; is notified of work, and pulls it.

    *take* is how the queue gives it messages: at most so many, or None. *tell* is called, in
    whatever thread, when there may be work; it must not wait. Of two with different *priority* the
    higher goes first; one without a priority goes before all. Source: Qpid.
    """

    def __init__(
        self,
        name: str,
        take: Callable[[int], Any],
        tell: Callable[[QueueConsumer], None],
        *,
        priority: int | None = None,
        acquires: bool = True,
        selective: bool = False,
    ) -> None:
        self.name = name
        self.take = take
        self.priority = priority
        #: False for a browser.
        self.acquires = acquires
        #: Whether it leaves messages to others that it does not choose.
        self.selective = selective
        #: How often it was notified.
        self.wakeups = 0
        #: The number of the arrival after which it found nothing.
        self.looked_at = -1
        #: Its place in the manager's lists, while it is registered.
        self.node: Node | None = None
        self._tell = tell
        self._holds: set[Hold] = set()
        self._lock = threading.Lock()
        self._manager: QueueConsumerManager | None = None

    @property
    def rank(self) -> float:
        """Its priority, as what can be compared."""
        return inf if self.priority is None else self.priority

    @property
    def desires_work(self) -> bool:
        """Whether nothing holds it."""
        return not self._holds

    def join(self, manager: QueueConsumerManager) -> None:
        """Register with a queue."""
        self._manager = manager
        manager.add(self)

    def leave(self) -> None:
        """Take no part any more."""
        if self._manager is not None:
            self._manager.remove(self)

    def hold(self, why: Hold) -> None:
        """Want no work, until `release` has been called for each reason."""
        self._change(why, held=True)

    def release(self, why: Hold) -> None:
        """A reason to want no work is gone."""
        self._change(why, held=False)

    def notify_work(self) -> None:
        """There may be work: called by the queue."""
        self.wakeups += 1
        say(Step.CONSUMER_NOTIFIES_TARGET, self.name)
        self._tell(self)

    def pull(self, limit: int) -> Any:
        """At most so many messages from the queue, or None."""
        say(Step.CONSUMER_PULLS, self.name)
        assert self._manager is not None, "a consumer pulls from the queue that it has joined"
        return self._manager.deliver_messages(self, limit)

    def _change(self, why: Hold, *, held: bool) -> None:
        with self._lock:
            desired_before = not self._holds
            if held:
                self._holds.add(why)
            else:
                self._holds.discard(why)
            desired = not self._holds
            changed = desired != desired_before
        if changed and self._manager is not None:
            # Asked again by the manager, since another thread may have changed it back meanwhile.
            self._manager.set_notify_work_desired(self, desired)

    def __repr__(self) -> str:
        standing = self.node.standing.value if self.node else "nowhere"
        held = f", held by {', '.join(sorted(h.value for h in self._holds))}" if self._holds else ""
        return f"<QueueConsumer {self.name!r}, {standing}{held}>"
