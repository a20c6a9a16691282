"""Stations: on the way from a consumer that is told of work to the thread that does it, and back.

A target stands for what a handler is to several queues, with one consumer for each of them; a
session for what a pool runs in a worker; a connection for the worker, whose thread it wakes. Each
keeps in mind who below it would like to work, tells the one above, and visits them in this order
when it is visited. What is told in the thread of whoever loads is so done in that of the worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from queue_core.consumers.trace import Step, say

Below = TypeVar("Below")


class Station(Generic[Below]):
    """Who would like to work, each once, in the order in which they said so."""

    def __init__(self, name: str, tells: Step, visits: Step, above: Callable[[], None]) -> None:
        self.name = name
        self._tells = tells
        self._visits = visits
        self._above = above
        self._lock = threading.Lock()
        self._wishing: dict[Below, None] = {}

    def notify_work(self, below: Below) -> None:
        """One below would like to work."""
        with self._lock:
            is_new = below not in self._wishing
            self._wishing[below] = None
        if is_new:
            say(self._tells, self.name)
            self._above()

    def again(self, below: Below) -> None:
        """One that is just visited would like to be visited again, after the others."""
        with self._lock:
            self._wishing[below] = None

    def visit(self) -> Iterator[Below]:
        """Those who would like to work, until there is none; they may say so again meanwhile."""
        while True:
            with self._lock:
                below = next(iter(self._wishing), None)
                if below is None:
                    return
                del self._wishing[below]
            say(self._visits, self.name)
            yield below
