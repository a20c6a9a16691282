"""Answers that are computed once for all who look at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")

#: The most answers that are kept.
_MOST = 64
#: An answer that nobody asked for in these seconds does not slow the others down.
_ACTIVE_SECONDS = 15.0


class _Slot(Generic[Answer]):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answer: Answer | None = None
        self.ends_at = 0.0
        self.asked_at = 0.0


class Shared(Generic[Answer]):
    """
    Keeps each answer for some seconds, and computes it in one thread at a time.

    The more different answers people look at, the longer each is kept. So all together are computed
    at most once in *each* seconds, or are busy for a tenth of the time.
    """

    def __init__(self, each: float) -> None:
        self._each = each
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot[Answer]] = {}

    def get(self, key: Hashable, compute: Callable[[], Answer]) -> Answer:
        """Return the answer of *key*; raises what *compute* raises, which is not kept."""
        begun = time.monotonic()
        with self._lock:
            slot = self._slots.pop(key, None) or _Slot()
            self._slots[key] = slot
            slot.asked_at = begun
            while len(self._slots) > _MOST:
                del self._slots[next(iter(self._slots))]
            active = sum(begun - each.asked_at < _ACTIVE_SECONDS for each in self._slots.values())
        with slot.lock:
            if slot.answer is None or time.monotonic() >= slot.ends_at:
                started = time.monotonic()
                answer = compute()
                took = time.monotonic() - started
                slot.answer = answer
                slot.ends_at = started + max(self._each * active, 10 * took * active)
            return slot.answer

    def forget(self) -> None:
        """Forget all answers, after something was changed."""
        with self._lock:
            self._slots.clear()
