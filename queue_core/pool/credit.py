"""Credit: how many messages some consumers together may have in flight."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Credit:
    """So many messages, of which some are in use; *tell* hears when there is none left, or some."""

    def __init__(self, limit: int | None, tell: Callable[[bool], None]) -> None:
        self.limit = limit
        self.used = 0
        self._tell = tell
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._told = True
        #: Since when there is none; null while there is.
        self._none_since: float | None = None

    def reserve(self, count: int) -> int:
        """As many as there are, at most *count*."""
        with self._lock:
            granted = count if self.limit is None else max(min(count, self.limit - self.used), 0)
            self.used += granted
            self._note()
        if not granted:
            self._say()
        # Whoever has the last of it is not told that there is none before it has used it.
        return granted

    def give_back(self, count: int) -> None:
        """So many are not in use any more."""
        with self._lock:
            self.used -= count
            self._note()
        self._say()

    def missing_for(self) -> float:
        """For how many seconds there has been none; 0 while there is."""
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

    def _say(self) -> None:
        """One after the other, and the last word is the truth."""
        while self._told != self._is_left:
            with self._telling:
                left = self._is_left
                if self._told != left:
                    self._told = left
                    self._tell(left)
