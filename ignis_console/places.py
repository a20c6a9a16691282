"""Places for what may wait long in the catalog, so that pages always find a connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class NoPlace(Exception):
    """All places are taken."""


class Places:
    """A number of places, each for one thread at a time."""

    def __init__(self, number: int, patience: float) -> None:
        """*patience*: the seconds for which a thread waits for a place."""
        self._free = threading.BoundedSemaphore(number)
        self._patience = patience

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take a place; raises `NoPlace`."""
        if not self._free.acquire(timeout=self._patience):
            raise NoPlace
        try:
            yield
        finally:
            self._free.release()
