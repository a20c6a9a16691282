"""`QueueConsumerManager`: which consumer of a queue is told of work, and who gets it.

One per process and queue. A queue tells one interested consumer of each piece of work; who is told
pulls until nothing is left or it wants no more, and then stands at the back again. So a steady
stream wakes few, and nobody is woken for nothing but by chance. A lower priority is told, and
given, only while nobody of a higher one wants work. Who acquires nothing is always told.

Source: Qpid's AbstractQueue and QueueConsumerManager. Of the three versions of their description,
two say that a consumer must pull until it is given nothing, and one that it must pull; two that any
consumer can be uninterested, and one that only those who acquire: what says more is kept.
"""

from __future__ import annotations

import itertools
from enum import Enum
from typing import Any

from queue_core.consumers.consumer import QueueConsumer
from queue_core.consumers.lists import ConsumerLists, ConsumerState
from queue_core.consumers.trace import Step, say


class Reason(Enum):
    """Why consumers are notified."""

    INTERESTED = "a consumer became interested"
    ARRIVAL = "a message arrived"
    AVAILABLE = "a message became available again"
    NOT_DONE = "a notified consumer did not do the work"
    UNINTERESTED = "a higher priority became uninterested"
    MORE = "a consumer was given all that it could take"


class QueueConsumerManager:
    """The consumers of one queue in this process. Safe for threads; no lock is held in a call."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.lists = ConsumerLists()
        #: How often consumers were notified, and why somebody was looked for.
        self.wakeups = 0
        self.reasons: dict[Reason, int] = dict.fromkeys(Reason, 0)
        # Things that may mean work are numbered. Nobody has looked yet, and there may be some.
        self._numbers = itertools.count(1)
        self._arrival = 0
        #: The number up to which there is nothing, as somebody has seen who takes everything.
        self._exhausted = -1

    def add(self, consumer: QueueConsumer) -> None:
        """Register a consumer: it is notified if there may be work."""
        self.lists.add(consumer)
        if consumer.desires_work:
            self._became_interested(consumer)

    def remove(self, consumer: QueueConsumer) -> None:
        """Forget a consumer; what it was notified of is told to another one."""
        self._somebody_else(self.lists.remove(consumer))

    def set_notify_work_desired(self, consumer: QueueConsumer, desired: bool) -> None:
        """A consumer wants work, or wants none."""
        stood = self.lists.set_interest(consumer, desired)
        if desired != consumer.desires_work:
            # Another thread was faster, and may have come here before.
            desired = consumer.desires_work
            stood = self.lists.set_interest(consumer, desired) or stood
        if stood is None:
            return
        if desired:
            self._became_interested(consumer)
        else:
            self._somebody_else(stood)

    def notify_arrival(self, reason: Reason = Reason.ARRIVAL) -> None:
        """There is a piece of work, or there may be: one consumer is told, and all browsers."""
        self._arrival = next(self._numbers)
        say(Step.ARRIVED, self.queue)
        for browser in self.lists.non_acquiring:
            self._wake(browser)
        self._notify_one(reason)

    def deliver_single_message(self, consumer: QueueConsumer) -> Any:
        """One message for a consumer that was notified; None when there is none for it."""
        return self._deliver(consumer, 1)

    def deliver_messages(self, consumer: QueueConsumer, limit: int) -> Any:
        """At most so many at once. Where it is given so many, another one is told of the rest."""
        work = self._deliver(consumer, limit)
        if work is not None and len(work) >= limit and consumer.acquires:
            self._arrival = next(self._numbers)
            self._notify_one(Reason.MORE)
        return work

    @property
    def has_work(self) -> bool:
        """Whether there may be work: False when somebody has looked since the last arrival."""
        return self._exhausted != self._arrival

    def has_looked(self, consumer: QueueConsumer) -> bool:
        """Whether there is nothing for this consumer, as far as anybody knows."""
        return consumer.looked_at == self._arrival or (consumer.acquires and not self.has_work)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{count} {name}" for name, count in self.lists.sizes().items())
        return f"<QueueConsumerManager of {self.queue!r}: {sizes}>"

    def _deliver(self, consumer: QueueConsumer, limit: int) -> Any:
        if not self._may_pull(consumer):
            return None
        seen = self._arrival
        try:
            work = consumer.take(limit)
        except BaseException:
            self._found_nothing(consumer, seen, sure=False)
            raise
        if work is None or not len(work):
            self._found_nothing(consumer, seen, sure=not consumer.selective)
            return None
        say(Step.DELIVERED, consumer.name)
        return work

    def _may_pull(self, consumer: QueueConsumer) -> bool:
        """Whether it may pull now: it wants work, and nobody goes before it."""
        if not consumer.acquires:
            return consumer.desires_work
        # It may come without being told, and then is at work as well.
        self.lists.set_notified(consumer, True)
        node = consumer.node
        if node is None or node.standing is not ConsumerState.NOTIFIED:
            return False
        highest = self.lists.highest_wanting()
        if highest is not None and highest > consumer.rank:
            self.lists.set_notified(consumer, False)
            self._notify_one(Reason.NOT_DONE)
            return False
        return True

    def _found_nothing(self, consumer: QueueConsumer, seen: int, *, sure: bool) -> None:
        """It is told no more until something else arrives; nor is anybody where it is *sure*."""
        consumer.looked_at = seen
        if not consumer.acquires:
            return
        if sure:
            self._exhausted = seen
        self.lists.set_notified(consumer, False)
        # What arrived while it looked may have found it still notified, and so nobody to tell.
        self._notify_one(Reason.NOT_DONE)

    def _became_interested(self, consumer: QueueConsumer) -> None:
        if not consumer.acquires:
            self._wake(consumer)
        elif self.has_work:
            self._notify_one(Reason.INTERESTED)

    def _somebody_else(self, stood: ConsumerState) -> None:
        """One that stood there wants no more work: another may have to do it, or may do it now."""
        if stood is ConsumerState.NOTIFIED:
            self._notify_one(Reason.NOT_DONE)
        elif stood is ConsumerState.INTERESTED:
            self._notify_one(Reason.UNINTERESTED)

    def _notify_one(self, reason: Reason) -> None:
        """Tell the one that has waited for longest, of the highest priority that wants work."""
        arrival = self._arrival
        rank = self.lists.highest_wanting()
        if self._exhausted == arrival or rank is None:
            return
        self.reasons[reason] += 1
        for consumer in self.lists.interested(rank):
            if consumer.looked_at != arrival and self.lists.set_notified(consumer, True):
                self._wake(consumer)
                return

    def _wake(self, consumer: QueueConsumer) -> None:
        self.wakeups += 1
        say(Step.QUEUE_NOTIFIES_CONSUMER, self.queue)
        consumer.notify_work()
