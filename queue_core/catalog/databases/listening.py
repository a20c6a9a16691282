"""Listeners on PostgreSQL: all those of an engine share one connection.

One of the threads that wait reads from it, and hands what it hears to the others. So there is no
thread of its own, and no connection for each waiting thread. The connection is closed with the last
listener.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Engine

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
        ear.join(self, connect)

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


class Ear:
    """A connection that listens, and its listeners."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._listeners: set[PostgresListener] = set()
        self._driver: Any = None
        # Whether a thread reads from the connection now.
        self._read = False
        self._error: Exception | None = None

    @property
    def lost(self) -> bool:
        """Whether its connection has failed; it has no other one."""
        return self._error is not None

    def join(self, listener: PostgresListener, connect: Callable[[], Any]) -> None:
        """Let a listener hear what is sent from now on; *connect* opens the connection."""
        with self._changed:
            if self._driver is None:
                self._driver = _listening(connect())
            self._listeners.add(listener)

    def leave(self, listener: PostgresListener) -> None:
        """Let a listener hear no more, and close the connection after the last one."""
        with self._changed:
            self._listeners.discard(listener)
            if not self._listeners and self._driver is not None:
                self._driver.close()
                self._driver = None

    def heard_by(self, listener: PostgresListener) -> set[str]:
        """Return what a listener has heard, and has not seen yet."""
        with self._changed:
            heard, listener.heard = listener.heard, set()
            return heard

    def wait(self, listener: PostgresListener, end: float) -> bool:
        """Wait until a listener has heard anything, or until *end*; look at least once."""
        looked = False
        with self._changed:
            while not listener.heard:
                if self._error is not None:
                    raise self._error
                left = end - time.monotonic()
                if left <= 0 and (looked or self._read):
                    return False
                if self._read:
                    self._changed.wait(left)
                else:
                    self._hear(max(left, 0.0))
                    looked = True
            return True

    def _hear(self, seconds: float) -> None:
        """Read what is sent within some seconds, for all listeners; without the lock meanwhile."""
        driver = self._driver
        heard: set[str] = set()
        self._read = True
        self._changed.release()
        try:
            for each in driver.notifies(timeout=seconds, stop_after=1):
                heard.update(each.payload.split() or (EVERY,))
            if heard:
                # Those that have come meanwhile need no second look.
                for each in driver.notifies(timeout=0):
                    heard.update(each.payload.split() or (EVERY,))
        except Exception as error:
            self._error = error
            raise
        finally:
            self._changed.acquire()
            self._read = False
            for listener in self._listeners:
                listener.heard |= heard
            # Another thread has to read from now on.
            self._changed.notify_all()


def _listening(driver: Any) -> Any:
    try:
        driver.autocommit = True
        driver.execute(f"LISTEN {CHANNEL}")
    except BaseException:
        # No pool knows the connection, so this must close it.
        driver.close()
        raise
    # A notification may take any time.
    driver.answer_seconds = math.inf
    return driver


_ears: WeakKeyDictionary[Engine, Ear] = WeakKeyDictionary()
_lock = threading.Lock()


def listen(engine: Engine, queue_ids: QueueIds) -> PostgresListener:
    """Return a new listener for notifications of some queues."""
    with _lock:
        ear = _ears.get(engine)
        if ear is None or ear.lost:
            ear = _ears[engine] = Ear()
    return PostgresListener(ear, lambda: detached(engine), queue_ids)


def _forget() -> None:
    """Let a forked process open connections of its own."""
    global _lock
    _lock = threading.Lock()
    _ears.clear()


os.register_at_fork(after_in_child=_forget)
