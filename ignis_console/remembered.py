"""What pages have shown, by tokens that nobody can guess; the oldest is forgotten first."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """
    Keeps values up to a total size.

    Args:
        most: The most that all values may have together.
        size: Returns the size of a value; by default, each has 1.
    """

    def __init__(self, most: int, size: Callable[[Value], int] = lambda _: 1) -> None:
        self._most = most
        self._size = size
        self._lock = threading.Lock()
        self._values: OrderedDict[str, Value] = OrderedDict()
        self._total = 0

    def keep(self, value: Value) -> str | None:
        """Return the token of a value from now on; None: it is too large to be kept."""
        size = self._size(value)
        if size > self._most:
            return None
        token = secrets.token_urlsafe(12)
        with self._lock:
            self._values[token] = value
            self._total += size
            while self._total > self._most:
                _, oldest = self._values.popitem(last=False)
                self._total -= self._size(oldest)
        return token

    def find(self, token: str | None) -> Value | None:
        """Return the value of a token; None: there is none, or it was forgotten."""
        with self._lock:
            return None if token is None else self._values.get(token)
