"""Windows: the last calls of a handler, per key. Calls that were not made count as successful."""

from __future__ import annotations

import math
from collections import deque


class Windows:
    """The last *of* calls of each key with a failure among them. Not thread-safe."""

    def __init__(self, share: float, of: int) -> None:
        self._of = of
        self._most = max(math.ceil(share * of), 1)
        #: Whether each call failed; the oldest first.
        self._calls: dict[str, deque[bool]] = {}
        self._failures: dict[str, int] = {}

    def note(self, key: str, failed: bool) -> bool:
        """Note a call; return whether too many have failed."""
        window = self._calls.get(key)
        if window is None:
            if not failed:
                return False
            window = self._calls[key] = deque()
        window.append(failed)
        failures = self._failures.get(key, 0) + failed
        if len(window) > self._of:
            failures -= window.popleft()
        if failures:
            self._failures[key] = failures
        else:
            self.clear(key)
        return failures >= self._most

    def note_many(self, key: str, calls: int, failures: int) -> bool:
        """Note calls whose order is unknown; return whether too many have failed."""
        if calls > self._of:
            # As many of the last calls as of all.
            failures = math.ceil(failures * self._of / calls)
            calls = self._of
        too_many = False
        for number in range(calls):
            too_many = self.note(key, number >= calls - failures)
        return too_many

    def clear(self, key: str) -> None:
        """Forget the calls of a key."""
        self._calls.pop(key, None)
        self._failures.pop(key, None)

    def __len__(self) -> int:
        return len(self._calls)
