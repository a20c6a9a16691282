"""Credit: how many messages the workers of a pool may have in flight together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Credit:
    """
    A bounded number of messages, some of them in use. Thread-safe.

    Args:
        limit: The most messages in use; None for no limit.
        on_change: Called with False when a reservation is refused because no credit is left, and
            with True when some is left again.
    """

    def __init__(self, limit: int | None, on_change: Callable[[bool], None]) -> None:
        self.limit = limit
        self.used = 0
        self._on_change = on_change
        self._lock = threading.Lock()
        self._reporting = threading.Lock()
        self._reported = True
        #: When the credit ran out; None while some is left.
        self._none_since: float | None = None

    def reserve(self, count: int) -> int:
        """Reserve up to *count* messages, and return how many."""
        with self._lock:
            granted = count if self.limit is None else max(min(count, self.limit - self.used), 0)
            self.used += granted
            self._note()
        if not granted:
            # Not earlier: the worker that reserves the last credit must use it first.
            self._report()
        return granted

    def give_back(self, count: int) -> None:
        """Release *count* messages."""
        with self._lock:
            self.used -= count
            self._note()
        self._report()

    def missing_for(self) -> float:
        """Return for how many seconds there has been no credit; 0 while some is left."""
        since = self._none_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def _is_left(self) -> bool:
        return self.limit is None or self.used < self.limit

    def _note(self) -> None:
        if self._is_left:
            self._none_since = None
        elif self._none_since is None:
            self._none_since = time.monotonic()

    def _report(self) -> None:
        """Report changes one after another, so that the last report is true."""
        while self._reported != self._is_left:
            with self._reporting:
                left = self._is_left
                if self._reported != left:
                    self._reported = left
                    self._on_change(left)
