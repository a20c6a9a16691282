"""The ready set of a worker: its consumers that want to work, and the signal that wakes it.

Qpid passes a notification from a consumer to its target, to the session and to the connection, and
visits them in reverse. In a worker, each of these has exactly one child: the connection is the
worker, the session is the part of the pool that runs in it, and the target is the handler. So one
set takes the steps of all three. The notifying thread adds consumers, and the worker's thread
visits them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from queue_core.consumers.trace import Step, record

Consumer = TypeVar("Consumer")


class ReadySet(Generic[Consumer]):
    """
    Consumers that want to work, each once, in the order in which they were notified. Thread-safe.

    Args:
        worker: The worker's name, in traces.
        pool: The pool's name, in traces.
        wake: Called when a consumer is added by `notify_work`; it must not wait.
    """

    def __init__(self, worker: str, pool: str, wake: Callable[[], object]) -> None:
        self._connection = worker
        self._session = f"{pool} in {worker}"
        self._target = f"target of {worker}"
        self._wake = wake
        self._lock = threading.Lock()
        self._ready: dict[Consumer, None] = {}

    def notify_work(self, consumer: Consumer) -> None:
        """Add a consumer, and wake the worker if the consumer is new."""
        with self._lock:
            is_new = consumer not in self._ready
            self._ready[consumer] = None
        if is_new:
            record(Step.TARGET_NOTIFIES_SESSION, self._target)
            record(Step.SESSION_NOTIFIES_CONNECTION, self._session)
            record(Step.CONNECTION_SCHEDULES_ITSELF, self._connection)
            self._wake()

    def put_back(self, consumer: Consumer) -> None:
        """Add a consumer during its visit, to visit it again after the others."""
        with self._lock:
            self._ready[consumer] = None

    def discard(self, consumer: Consumer) -> None:
        """Remove a consumer, if it is there."""
        with self._lock:
            self._ready.pop(consumer, None)

    def members(self) -> list[Consumer]:
        """Return the consumers in order."""
        with self._lock:
            return list(self._ready)

    def visit(self) -> Iterator[Consumer]:
        """Remove and yield the consumers, in order, until none is left; others may be added."""
        is_first = True
        while True:
            with self._lock:
                consumer = next(iter(self._ready), None)
                if consumer is None:
                    return
                del self._ready[consumer]
            if is_first:
                record(Step.CONNECTION_VISITS_SESSION, self._connection)
                record(Step.SESSION_VISITS_TARGET, self._session)
                is_first = False
            record(Step.TARGET_VISITS_CONSUMER, self._target)
            yield consumer
