"""Back-pressure: a process that cannot take more says so, and all that consume in it wait."""

from __future__ import annotations

import threading
from weakref import WeakSet

from queue_core.consumers.consumer import Hold, QueueConsumer


class Pressure:
    """
    A valve for the consumers of a process, shared by as many pools as one likes.

    What is in the hands of handlers is finished; nothing more is fired until it is relieved.
    """

    def __init__(self) -> None:
        self.applied = False
        self._lock = threading.Lock()
        self._consumers: WeakSet[QueueConsumer] = WeakSet()

    def apply(self) -> None:
        """Take no more."""
        self._turn(True)

    def relieve(self) -> None:
        """Go on."""
        self._turn(False)

    def watch(self, consumer: QueueConsumer) -> None:
        """Hold this consumer as well."""
        with self._lock:
            self._consumers.add(consumer)
        self._pass_on(consumer)

    def _turn(self, applied: bool) -> None:
        with self._lock:
            self.applied = applied
            consumers = list(self._consumers)
        for consumer in consumers:
            self._pass_on(consumer)

    def _pass_on(self, consumer: QueueConsumer) -> None:
        if self.applied:
            consumer.hold(Hold.PRESSURE)
        else:
            consumer.release(Hold.PRESSURE)
