"""Stalls: sources that wait until the pool holds nothing, because suspects are to be fired alone.

A settlement may have emptied the pool's hands. Then all of them look again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Stalls:
    """What to call after the next settlement. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Callable[[], None]] = set()

    def add(self, look_again: Callable[[], None]) -> None:
        """Have *look_again* called after the next settlement, once."""
        with self._lock:
            self._waiting.add(look_again)

    def end(self) -> None:
        """Call all that wait, since messages were settled."""
        if not self._waiting:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for look_again in waiting:
            look_again()
