"""Listeners on PostgreSQL: all those of an engine share one connection."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

from queue_core.catalog.databases.ear import Ear, ear_of
from queue_core.catalog.databases.interface import QueueIds, detached

#: The channel of all notifications; the payload names the queues.
CHANNEL = "ignis"
#: Stands for all queues.
EVERY = ""


class PostgresListener:
    """Waits for notifications of some queues; raises the driver's errors."""

    def __init__(self, ear: Ear, connect: Callable[[], Any], queue_ids: QueueIds) -> None:
        self._ear = ear
        self._queue_ids = queue_ids
        #: The queues of notifications that it has not seen yet; `EVERY` if they name none.
        self.heard: set[str] = set()
        ear.join(self, lambda: _Notifications(connect()))

    def wait(self, seconds: float) -> bool:
        """Wait for a notification; False when *seconds* passed without one."""
        end = time.monotonic() + seconds
        while self._ear.wait(self, end):
            if self._concerned_by(self._ear.heard_by(self)):
                return True
        return False

    def close(self) -> None:
        """Stop listening."""
        self._ear.leave(self)

    def _concerned_by(self, heard: set[str]) -> bool:
        queue_ids = self._queue_ids()
        return queue_ids is None or EVERY in heard or not heard.isdisjoint(map(str, queue_ids))


class _Notifications:
    """A connection that listens."""

    def __init__(self, driver: Any) -> None:
        try:
            driver.autocommit = True
            driver.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            # No pool knows the connection, so this must close it.
            driver.close()
            raise
        # A notification may take any time.
        driver.answer_seconds = math.inf
        self._driver = driver
        self.close = driver.close

    def hear(self, seconds: float) -> set[str]:
        """Wait for a notification, and return the queues of all that have come."""
        heard: set[str] = set()
        for each in self._driver.notifies(timeout=seconds, stop_after=1):
            heard.update(each.payload.split() or (EVERY,))
        if heard:
            # Those that have come meanwhile need no second look.
            for each in self._driver.notifies(timeout=0):
                heard.update(each.payload.split() or (EVERY,))
        return heard


def listen(engine: Engine, queue_ids: QueueIds) -> PostgresListener:
    """Return a new listener for notifications of some queues."""
    return PostgresListener(ear_of(engine), lambda: detached(engine), queue_ids)
