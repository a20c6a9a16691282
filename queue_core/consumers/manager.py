"""`QueueConsumerManager`: notifies the consumers of one queue, and says which of them may pull.

There is one manager per process and queue. It notifies one interested consumer of each piece of
work. A notified consumer pulls until there is no work left or it wants no more, and then moves to
the end of the interested list. So a steady stream wakes few consumers, and hardly any in vain.
Consumers of a lower priority are notified, and may pull, only while no consumer of a higher
priority wants work. Browsers, which acquire no messages, are always notified.

Source: Qpid's AbstractQueue and QueueConsumerManager. Their description exists in three versions:
two say that a consumer must pull until it is given nothing, and one that it must pull; two say that
any consumer can be uninterested, and one that only acquiring ones can. ignis follows the stronger
statement of each pair.
"""

from __future__ import annotations

import itertools
from enum import Enum
from typing import TYPE_CHECKING, Any

from queue_core.consumers.lists import ConsumerLists, ConsumerState
from queue_core.consumers.trace import Step, record

if TYPE_CHECKING:
    from queue_core.consumers.consumer import QueueConsumer


class NotifyReason(Enum):
    """Why consumers are notified."""

    INTERESTED = "a consumer became interested"
    ARRIVAL = "a message arrived"
    AVAILABLE = "a message became available again"
    NOT_DONE = "a notified consumer did not do the work"
    UNINTERESTED = "a higher priority became uninterested"
    MORE = "a consumer was given all that it could take"


class QueueConsumerManager:
    """The consumers of one queue in this process. Thread-safe; calls consumers without a lock."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.lists = ConsumerLists()
        #: How often consumers were notified.
        self.wakeups = 0
        #: How often a consumer was looked for, by reason.
        self.reasons: dict[NotifyReason, int] = dict.fromkeys(NotifyReason, 0)
        # Each event that may mean work has a number. At first, there may be some work.
        self._numbers = itertools.count(1)
        #: The number of the last arrival.
        self.arrival = 0
        #: The arrival after which a consumer that takes everything found nothing.
        self._exhausted = -1
        #: Whether a consumer got messages since consumers were last notified of an arrival.
        self._gave = False
        #: Whether a pull has failed since the last arrival.
        self.has_failed = False

    def add(self, consumer: QueueConsumer[Any]) -> None:
        """Register a consumer, and notify it if there may be work."""
        self.lists.add(consumer)
        # Another thread may have changed its wish before it was in a list.
        self.set_notify_work_desired(consumer, consumer.desires_work)
        if consumer.desires_work:
            self._became_interested(consumer)

    def remove(self, consumer: QueueConsumer[Any]) -> None:
        """Remove a consumer, and notify another one of the work that it leaves."""
        self._pass_on(self.lists.remove(consumer))

    def set_notify_work_desired(self, consumer: QueueConsumer[Any], desired: bool) -> None:
        """Move a consumer that now wants work, or no longer wants any."""
        left = self.lists.set_interest(consumer, desired)
        if desired != consumer.desires_work:
            # Another thread has changed it since, and may have been here first.
            desired = consumer.desires_work
            left = self.lists.set_interest(consumer, desired) or left
        if left is None:
            return
        if desired:
            self._became_interested(consumer)
        else:
            self._pass_on(left)

    def notify_arrival(self, reason: NotifyReason = NotifyReason.ARRIVAL) -> None:
        """Notify one consumer, and all browsers, that there is or may be work."""
        self.arrival = next(self._numbers)
        self._gave = self.has_failed = False
        record(Step.ARRIVED, self.queue)
        for browser in self.lists.non_acquiring:
            self._wake(browser)
        self._notify_one(reason)

    def begin_pull(self, consumer: QueueConsumer[Any]) -> int | None:
        """Return the number of the last arrival if the consumer may pull now, or None."""
        if not consumer.acquires:
            return self.arrival if consumer.desires_work else None
        # It may come without a notification; then it is at work as well.
        self.lists.set_notified(consumer, True)
        node = consumer.node
        if node is None or node.state is not ConsumerState.NOTIFIED:
            return None
        highest = self.lists.highest_wanting()
        if highest is not None and highest > consumer.rank:
            self.lists.set_notified(consumer, False)
            self._notify_one(NotifyReason.NOT_DONE)
            return None
        return self.arrival

    def found_nothing(self, consumer: QueueConsumer[Any], arrival: int, *, for_all: bool) -> None:
        """
        Do not notify a consumer again before the next arrival.

        With *for_all*, there is no work for any other consumer either. *arrival* is the number that
        `begin_pull` returned.
        """
        consumer.exhausted_at = arrival
        if not consumer.acquires:
            return
        if for_all:
            self._exhausted = arrival
        self.lists.set_notified(consumer, False)
        # If a message arrived during the pull, this consumer was still notified, so no other was.
        self._notify_one(NotifyReason.NOT_DONE)

    def found_some(self) -> None:
        """Note that a consumer got messages."""
        self._gave = True

    def found_more(self) -> None:
        """Notify another consumer, because one got as much as it could take."""
        self.arrival = next(self._numbers)
        self._notify_one(NotifyReason.MORE)

    @property
    def has_work(self) -> bool:
        """Whether there may be work: False once a pull has found nothing since the last arrival."""
        return self._exhausted != self.arrival

    @property
    def was_in_vain(self) -> bool:
        """Whether consumers have pulled since the last arrival, and none got a message."""
        return not self._gave and not self.has_work

    def has_nothing_for(self, consumer: QueueConsumer[Any]) -> bool:
        """Whether this consumer has no work, as far as the manager knows."""
        return consumer.exhausted_at == self.arrival or (consumer.acquires and not self.has_work)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{count} {name}" for name, count in self.lists.sizes().items())
        return f"<QueueConsumerManager of {self.queue!r}: {sizes}>"

    def _became_interested(self, consumer: QueueConsumer[Any]) -> None:
        if not consumer.acquires:
            self._wake(consumer)
        elif self.has_work:
            self._notify_one(NotifyReason.INTERESTED)

    def _pass_on(self, left: ConsumerState) -> None:
        """Notify another consumer if one that left this state makes that necessary."""
        if left is ConsumerState.NOTIFIED:
            self._notify_one(NotifyReason.NOT_DONE)
        elif left is ConsumerState.INTERESTED:
            self._notify_one(NotifyReason.UNINTERESTED)

    def _notify_one(self, reason: NotifyReason) -> None:
        """Notify who has waited longest, of the highest rank; one at work later, in a call last."""
        arrival = self.arrival
        rank = self.lists.highest_wanting()
        if self._exhausted == arrival or rank is None:
            return
        self.reasons[reason] += 1
        for most in range(3):
            for consumer in self.lists.interested(rank):
                suits = consumer.exhausted_at != arrival and consumer.busy() <= most
                if suits and self.lists.set_notified(consumer, True):
                    self._wake(consumer)
                    return

    def _wake(self, consumer: QueueConsumer[Any]) -> None:
        self.wakeups += 1
        record(Step.QUEUE_NOTIFIES_CONSUMER, self.queue)
        consumer.notify_work()
