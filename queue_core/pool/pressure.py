"""Back-pressure: an overloaded process suspends all its consumers."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakSet

from queue_core.consumers.consumer import QueueConsumer, SuspendReason
from queue_core.support.interruption import shielded


@shielded
class Pressure:
    """
    A valve for the consumers of a process. Several pools and threads can share it.

    While it is applied, the pools fire no more messages. Handlers finish the messages that they
    already have. Pass it as `ConsumerPool(…, pressure=…)`.

    Attributes:
        applied: Whether the pressure is applied now; False at first.
    """

    def __init__(self) -> None:
        self.applied = False
        self._lock = threading.Lock()
        self._consumers: WeakSet[QueueConsumer[Any]] = WeakSet()

    def apply(self) -> None:
        """Suspend the consumers of all pools that share this, including pools that start later."""
        self._set(True)

    def relieve(self) -> None:
        """Let the consumers continue."""
        self._set(False)

    def watch(self, consumer: QueueConsumer[Any]) -> None:
        """
        Suspend this consumer too while the pressure is applied; pools call this.

        Args:
            consumer: A consumer of this process.
        """
        with self._lock:
            self._consumers.add(consumer)
        self._pass_on(consumer)

    def _set(self, applied: bool) -> None:
        with self._lock:
            self.applied = applied
            consumers = list(self._consumers)
        for consumer in consumers:
            self._pass_on(consumer)

    def _pass_on(self, consumer: QueueConsumer[Any]) -> None:
        consumer.follow(SuspendReason.BACK_PRESSURE, lambda: self.applied)
