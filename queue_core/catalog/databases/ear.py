"""`Ear`: the threads of a process that wait for the same catalog share one channel.

One of them reads from it, and hands what it hears to the others. So there is no thread of its own,
and no channel for each waiting thread. The channel is closed with the last of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from errno import ECONNRESET
from typing import Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import Engine


class Channel(Protocol):
    """Reports changes of the catalog."""

    def hear(self, seconds: float) -> set[str]:
        """Wait for changes, and return which queues they concern; nothing after *seconds*."""

    def close(self) -> None:
        """Stop hearing changes."""


class Ear:
    """A channel, and those who hear what comes from it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: What has come for each of those who hear, and was not seen yet.
        self._heard: dict[object, set[str]] = {}
        self._channel: Channel | None = None
        # Whether a thread reads from the channel now.
        self._read = False
        self._error: Exception | None = None

    @property
    def lost(self) -> bool:
        """Whether its channel has failed; `ear_of` then makes another ear."""
        return self._error is not None

    def join(self, hearer: object, connect: Callable[[], Channel]) -> None:
        """Add a hearer of what comes from now on; *connect* opens the channel."""
        with self._changed:
            if self._channel is None:
                self._channel = connect()
            self._heard[hearer] = set()

    def leave(self, hearer: object) -> None:
        """Remove a hearer, and close the channel after the last one."""
        with self._changed:
            self._heard.pop(hearer, None)
            if not self._heard and self._channel is not None:
                self._channel.close()
                self._channel = None

    def wait(self, hearer: object, end: float) -> set[str]:
        """
        Wait until *hearer* has heard something, or until *end*; look at least once.

        Return what has come and was not seen yet. One thread at a time waits for each hearer.
        """
        looked = False
        with self._changed:
            heard = self._heard[hearer]
            while not heard:
                if self._error is not None:
                    # The error of another thread; to this one, the channel is lost.
                    raise ConnectionResetError(ECONNRESET, str(self._error)) from self._error
                left = end - time.monotonic()
                if left <= 0 and (looked or self._read):
                    return set()
                if self._read:
                    self._changed.wait(left)
                else:
                    self._hear(max(left, 0.0))
                    looked = True
            seen = set(heard)
            heard.clear()
            return seen

    def _hear(self, seconds: float) -> None:
        """Read what comes within some seconds, for all; without the lock meanwhile."""
        channel = self._channel
        assert channel is not None, "it is open while somebody hears"
        heard: set[str] = set()
        self._read = True
        try:
            self._changed.release()
            heard = channel.hear(seconds)
        except Exception as error:
            self._error = error
            raise
        finally:
            self._changed.acquire()
            self._read = False
            for each in self._heard.values():
                each.update(heard)
            # From now on, another thread has to read.
            self._changed.notify_all()


_ears: WeakKeyDictionary[Engine, Ear] = WeakKeyDictionary()
_lock = threading.Lock()


def ear_of(engine: Engine) -> Ear:
    """Return the ear that all who wait for the catalog of an engine share."""
    with _lock:
        ear = _ears.get(engine)
        if ear is None or ear.lost:
            ear = _ears[engine] = Ear()
    return ear


def _forget() -> None:
    """Let a forked process open channels of its own."""
    global _lock
    _lock = threading.Lock()
    _ears.clear()


os.register_at_fork(after_in_child=_forget)
