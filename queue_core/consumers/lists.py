"""The state of each consumer of a queue: five lists, and the moves between them.

| from | to | when |
|---|---|---|
| | interested, non-acquiring or not interested | the consumer is registered |
| not interested | interested; a browser: non-acquiring | it wants work |
| interested, notified; a browser: non-acquiring | not interested | it wants no work |
| interested | notified | it is notified of work |
| notified | the end of interested | it found no work |
| any | removed | it is closed |

Other moves are refused. The moves of one consumer happen one after another, and no callback runs
during a move.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from queue_core.consumers.entries import Entry, EntryList

if TYPE_CHECKING:
    from queue_core.consumers.consumer import QueueConsumer


class ConsumerState(Enum):
    """The list that a consumer is in, besides the list of all."""

    NON_ACQUIRING = "non-acquiring"
    NOT_INTERESTED = "not interested"
    INTERESTED = "interested"
    NOTIFIED = "notified"
    REMOVED = "removed"


#: The states of consumers that want work and could take messages.
WANTING = frozenset({ConsumerState.INTERESTED, ConsumerState.NOTIFIED})


class Node:
    """The position of a consumer in the lists, for as long as it is registered."""

    __slots__ = ("consumer", "entry", "in_all", "lock", "state")

    def __init__(self, consumer: QueueConsumer[Any]) -> None:
        self.consumer = consumer
        self.state = ConsumerState.REMOVED
        self.lock = threading.Lock()
        self.entry: Entry[QueueConsumer[Any]] | None = None
        self.in_all: Entry[QueueConsumer[Any]] | None = None


class ConsumerLists:
    """All, non-acquiring, not interested, interested (one list per priority), notified."""

    def __init__(self) -> None:
        self.all: EntryList[QueueConsumer[Any]] = EntryList()
        self.non_acquiring: EntryList[QueueConsumer[Any]] = EntryList()
        self.not_interested: EntryList[QueueConsumer[Any]] = EntryList()
        self.notified: EntryList[QueueConsumer[Any]] = EntryList()
        self._lock = threading.Lock()
        #: By rank, the highest first; replaced as a whole when a rank is added.
        self._interested: dict[float, EntryList[QueueConsumer[Any]]] = {}
        #: How many consumers of each rank are interested or notified.
        self._wanting: dict[float, int] = {}

    def add(self, consumer: QueueConsumer[Any]) -> None:
        """Register a consumer."""
        node = consumer.node = Node(consumer)
        node.in_all = self.all.append(consumer)
        self._move(node, {ConsumerState.REMOVED}, self._state_for(consumer, consumer.desires_work))

    def remove(self, consumer: QueueConsumer[Any]) -> ConsumerState:
        """Remove a consumer, and return the state it was in."""
        node = consumer.node
        if node is None:
            return ConsumerState.REMOVED
        left = self._move(node, set(ConsumerState) - {ConsumerState.REMOVED}, ConsumerState.REMOVED)
        if node.in_all is not None:
            node.in_all.delete()
        return left or ConsumerState.REMOVED

    def set_interest(self, consumer: QueueConsumer[Any], desired: bool) -> ConsumerState | None:
        """Move a consumer whose wish for work changed; return the state it left, if it moved."""
        if desired:
            origins = {ConsumerState.NOT_INTERESTED}
        else:
            origins = {*WANTING, ConsumerState.NON_ACQUIRING}
        return self._change(consumer, origins, self._state_for(consumer, desired))

    def set_notified(self, consumer: QueueConsumer[Any], notified: bool) -> bool:
        """Move a consumer to the notified or the end of the interested; return whether it moved."""
        origin, target = ConsumerState.INTERESTED, ConsumerState.NOTIFIED
        if not notified:
            origin, target = target, origin
        return self._change(consumer, {origin}, target) is not None

    def interested(self, rank: float) -> Iterator[QueueConsumer[Any]]:
        """Return the interested consumers of a rank, the one that has waited longest first."""
        consumers = self._interested.get(rank)
        return iter(()) if consumers is None else iter(consumers)

    def highest_wanting(self) -> float | None:
        """Return the highest rank that has an interested or notified consumer."""
        # A new rank replaces the dict, so it does not change during this loop.
        return next((rank for rank in self._interested if self._wanting.get(rank)), None)

    def sizes(self) -> dict[str, int]:
        """Return the number of consumers in each list."""
        return {
            "all": len(self.all),
            "non-acquiring": len(self.non_acquiring),
            "not interested": len(self.not_interested),
            "interested": sum(len(consumers) for consumers in self._interested.values()),
            "notified": len(self.notified),
        }

    def _state_for(self, consumer: QueueConsumer[Any], desired: bool) -> ConsumerState:
        if not desired:
            return ConsumerState.NOT_INTERESTED
        return ConsumerState.INTERESTED if consumer.acquires else ConsumerState.NON_ACQUIRING

    def _change(
        self, consumer: QueueConsumer[Any], origins: set[ConsumerState], to: ConsumerState
    ) -> ConsumerState | None:
        return None if consumer.node is None else self._move(consumer.node, origins, to)

    def _move(
        self, node: Node, origins: set[ConsumerState], to: ConsumerState
    ) -> ConsumerState | None:
        with node.lock:
            left = node.state
            if left not in origins:
                return None
            if node.entry is not None:
                node.entry.delete()
            node.state = to
            target = self._list(to, node.consumer.rank)
            node.entry = None if target is None else target.append(node.consumer)
            if (left in WANTING) != (to in WANTING):
                with self._lock:
                    change = 1 if to in WANTING else -1
                    self._wanting[node.consumer.rank] += change
            return left

    def _list(self, state: ConsumerState, rank: float) -> EntryList[QueueConsumer[Any]] | None:
        match state:
            case ConsumerState.NON_ACQUIRING:
                return self.non_acquiring
            case ConsumerState.NOT_INTERESTED:
                return self.not_interested
            case ConsumerState.NOTIFIED:
                return self.notified
            case ConsumerState.INTERESTED:
                return self._interested_of(rank)
        return None

    def _interested_of(self, rank: float) -> EntryList[QueueConsumer[Any]]:
        consumers = self._interested.get(rank)
        if consumers is not None:
            return consumers
        with self._lock:
            if rank not in self._interested:
                self._wanting[rank] = 0
                lists = self._interested | {rank: EntryList()}
                self._interested = dict(sorted(lists.items(), reverse=True))
            return self._interested[rank]
