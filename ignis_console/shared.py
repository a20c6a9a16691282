"""What the console keeps in memory: answers for all who look now, and what pages have shown."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from queue_core.errors import Unavailable
from queue_core.segments.lru_cache import LruCache

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Value = TypeVar("Value")

#: The most answers that are kept.
_MOST = 64
#: An answer that nobody asked for in these seconds does not delay other answers.
_ACTIVE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Look(Generic[Answer]):
    """The latest answer, and the error of a later attempt, if it failed."""

    seen: Answer
    #: By the monotonic clock.
    read_at: float
    error: str | None = None

    @property
    def age(self) -> float:
        """Seconds since the reading began."""
        return time.monotonic() - self.read_at


class _Slot(Generic[Answer]):
    def __init__(self, former: Look[Answer] | None = None) -> None:
        self.lock = threading.Lock()
        self.latest = former
        self.error: Unavailable | None = None
        self.begun_at: float | None = None
        self.took = 0.0
        self.asked_at = 0.0

    def ends_at(self, each: float, active: int, *, hasty: bool) -> float:
        """Return when the answer is to be computed again."""
        if self.begun_at is None:
            return 0.0
        if hasty:
            return self.begun_at + max(each, self.took)
        # A failure says nothing about how long the next attempt takes.
        busy = 0.0 if self.error else 10 * self.took
        return self.begun_at + active * max(each, busy)

    def compute(self, compute: Callable[[], Answer], now: float) -> None:
        """Compute the answer; keep the former one with the error of a store that is not reached."""
        try:
            self.latest, self.error = Look(compute(), now), None
        except Unavailable as error:
            self.error = error
            if self.latest is not None:
                self.latest = replace(self.latest, error=str(error))
        except BaseException:
            self.latest = self.error = self.begun_at = None
            raise
        # A failure counts from its end, so that those who waited for it need not wait for another.
        self.begun_at = time.monotonic() if self.error else now
        self.took = time.monotonic() - now


class Shared(Generic[Answer]):
    """
    Keeps each answer for some seconds, and computes it in one thread at a time.

    The more different answers people look at, the longer each is kept. So one answer at most is
    computed in *each* seconds, and computing takes a tenth of the time at most.
    """

    def __init__(self, each: float) -> None:
        self._each = each
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot[Answer]] = {}

    def get(
        self,
        key: Hashable,
        compute: Callable[[], Answer],
        *,
        hasty: bool = False,
        patience: float = 0.0,
    ) -> Look[Answer]:
        """
        Return the answer of *key*.

        While the store cannot be reached, it returns the former answer with the error. Raises the
        error if there is none, and every other error of *compute*. With *hasty*, the answer is
        kept for *each* seconds however many others are looked at, unless it takes longer. An answer
        younger than *patience* seconds is returned at once; a thread computes the next one if due.
        """
        begun = time.monotonic()
        with self._lock:
            slot = self._slots.pop(key, None) or _Slot()
            self._slots[key] = slot
            slot.asked_at = begun
            while len(self._slots) > _MOST:
                del self._slots[next(iter(self._slots))]
            active = sum(begun - each.asked_at < _ACTIVE_SECONDS for each in self._slots.values())
        latest, ends_at = slot.latest, slot.ends_at(self._each, active, hasty=hasty)
        # A forgotten answer ends at 0.
        if latest is not None and ends_at and latest.age < patience:
            if begun >= ends_at and slot.lock.acquire(blocking=False):
                beside = threading.Thread(target=_compute_beside, args=(slot, compute), daemon=True)
                try:
                    beside.start()
                except RuntimeError:
                    # No thread could be started, and nobody else would release the lock.
                    slot.lock.release()
            return latest
        with slot.lock:
            now = time.monotonic()
            if now >= slot.ends_at(self._each, active, hasty=hasty):
                slot.compute(compute, now)
            if slot.latest is None:
                assert slot.error is not None, "a reading without an error has an answer"
                raise slot.error
            return slot.latest

    def forget(self) -> None:
        """
        Compute all answers again, after something was changed.

        The former ones are shown only while the store cannot be reached.
        """
        with self._lock:
            # New ones, because an answer that is being computed may not see the change.
            self._slots = {key: _Slot(slot.latest) for key, slot in self._slots.items()}


def _compute_beside(slot: _Slot[Answer], compute: Callable[[], Answer]) -> None:
    """Compute an answer in a thread of its own, which has the lock of its slot."""
    try:
        slot.compute(compute, time.monotonic())
    except Exception as error:  # noqa: BLE001 - the next look computes it, and raises its error
        _log.warning("the store cannot be read: %s", error)
    finally:
        slot.lock.release()


class Remembered(LruCache[Hashable, Value]):
    """A cache that can also make up the key of a value."""

    def keep(self, value: Value) -> str | None:
        """Keep a value by a token that nobody can guess; return None: it is too large."""
        token = secrets.token_urlsafe(12)
        return token if self.put(token, value) else None
