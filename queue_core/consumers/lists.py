"""Where each consumer of a queue stands: the five lists, and who may move between which.

| from | to | when |
|---|---|---|
| | interested, non-acquiring or not interested | it is registered |
| not interested | interested; of a browser: non-acquiring | it wants work |
| interested, notified; of a browser: non-acquiring | not interested | it wants none |
| interested | notified | it is told that there is work |
| notified | the back of interested | it found none |
| any | removed | it is closed |

Nothing else: who asks for another move is told that there was none. Each consumer's moves are one
after another; nothing is called while one is made.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from enum import Enum

from queue_core.consumers.consumer import QueueConsumer
from queue_core.consumers.entries import Entry, EntryList


class ConsumerState(Enum):
    """In which of the lists a consumer is, beside the list of all."""

    NON_ACQUIRING = "non-acquiring"
    NOT_INTERESTED = "not interested"
    INTERESTED = "interested"
    NOTIFIED = "notified"
    REMOVED = "removed"


#: Those who want work, and could take messages.
WANTING = frozenset({ConsumerState.INTERESTED, ConsumerState.NOTIFIED})


class Node:
    """What moves between the lists: one per consumer, for as long as it is registered."""

    __slots__ = ("consumer", "entry", "in_all", "lock", "standing")

    def __init__(self, consumer: QueueConsumer) -> None:
        self.consumer = consumer
        self.standing = ConsumerState.REMOVED
        self.lock = threading.Lock()
        self.entry: Entry[QueueConsumer] | None = None
        self.in_all: Entry[QueueConsumer] | None = None


class ConsumerLists:
    """All, non-acquiring, not interested, interested (one per priority), notified."""

    def __init__(self) -> None:
        self.all: EntryList[QueueConsumer] = EntryList()
        self.non_acquiring: EntryList[QueueConsumer] = EntryList()
        self.not_interested: EntryList[QueueConsumer] = EntryList()
        self.notified: EntryList[QueueConsumer] = EntryList()
        self._lock = threading.Lock()
        #: By rank, the highest first; replaced as a whole when there is a new one.
        self._interested: dict[float, EntryList[QueueConsumer]] = {}
        #: How many of a rank are interested or notified.
        self._wanting: dict[float, int] = {}

    def add(self, consumer: QueueConsumer) -> None:
        """Register a consumer."""
        node = consumer.node = Node(consumer)
        node.in_all = self.all.append(consumer)
        self._move(node, {ConsumerState.REMOVED}, self._desired(consumer, consumer.desires_work))

    def remove(self, consumer: QueueConsumer) -> ConsumerState:
        """Forget a consumer; where it stood."""
        node = consumer.node
        if node is None:
            return ConsumerState.REMOVED
        stood = self._move(
            node, set(ConsumerState) - {ConsumerState.REMOVED}, ConsumerState.REMOVED
        )
        if node.in_all is not None:
            node.in_all.delete()
        return stood or ConsumerState.REMOVED

    def set_interest(self, consumer: QueueConsumer, desired: bool) -> ConsumerState | None:
        """It wants work, or it wants none; where it stood, or None when it has not moved."""
        if desired:
            return self._change(
                consumer, {ConsumerState.NOT_INTERESTED}, self._desired(consumer, desired)
            )
        return self._change(
            consumer, {*WANTING, ConsumerState.NON_ACQUIRING}, ConsumerState.NOT_INTERESTED
        )

    def set_notified(self, consumer: QueueConsumer, notified: bool) -> bool:
        """It is told of work, or it found none and goes to the back; whether it has moved."""
        here, there = ConsumerState.INTERESTED, ConsumerState.NOTIFIED
        if not notified:
            here, there = there, here
        return self._change(consumer, {here}, there) is not None

    def interested(self, rank: float) -> Iterator[QueueConsumer]:
        """Those of a rank who wait for work, who waits for longest first."""
        there = self._interested.get(rank)
        return iter(()) if there is None else iter(there)

    def highest_wanting(self) -> float | None:
        """The highest rank of which somebody is interested or notified."""
        # A new dict takes the place of the old one, so that nobody changes this one.
        return next((rank for rank in self._interested if self._wanting.get(rank)), None)

    def sizes(self) -> dict[str, int]:
        """How many consumers are in each list."""
        return {
            "all": len(self.all),
            "non-acquiring": len(self.non_acquiring),
            "not interested": len(self.not_interested),
            "interested": sum(len(there) for there in self._interested.values()),
            "notified": len(self.notified),
        }

    def _desired(self, consumer: QueueConsumer, desired: bool) -> ConsumerState:
        if not desired:
            return ConsumerState.NOT_INTERESTED
        return ConsumerState.INTERESTED if consumer.acquires else ConsumerState.NON_ACQUIRING

    def _change(
        self, consumer: QueueConsumer, origins: set[ConsumerState], to: ConsumerState
    ) -> ConsumerState | None:
        return None if consumer.node is None else self._move(consumer.node, origins, to)

    def _move(
        self, node: Node, origins: set[ConsumerState], to: ConsumerState
    ) -> ConsumerState | None:
        with node.lock:
            stood = node.standing
            if stood not in origins:
                return None
            if node.entry is not None:
                node.entry.delete()
            node.standing = to
            there = self._list(to, node.consumer.rank)
            node.entry = None if there is None else there.append(node.consumer)
            if (stood in WANTING) != (to in WANTING):
                with self._lock:
                    change = 1 if to in WANTING else -1
                    self._wanting[node.consumer.rank] += change
            return stood

    def _list(self, standing: ConsumerState, rank: float) -> EntryList[QueueConsumer] | None:
        match standing:
            case ConsumerState.NON_ACQUIRING:
                return self.non_acquiring
            case ConsumerState.NOT_INTERESTED:
                return self.not_interested
            case ConsumerState.NOTIFIED:
                return self.notified
            case ConsumerState.INTERESTED:
                return self._rank(rank)
        return None

    def _rank(self, rank: float) -> EntryList[QueueConsumer]:
        there = self._interested.get(rank)
        if there is not None:
            return there
        with self._lock:
            if rank not in self._interested:
                self._wanting[rank] = 0
                lists = self._interested | {rank: EntryList()}
                self._interested = dict(sorted(lists.items(), reverse=True))
            return self._interested[rank]
