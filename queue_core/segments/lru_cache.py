"""A cache of bounded total size that evicts the least recently used entries."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """
    Values by key, at most *capacity* in total as *size_of* measures them; safe for threads.

    By default, each value has the size 1.
    """

    def __init__(self, capacity: int, size_of: Callable[[V], int] = lambda _: 1) -> None:
        self._capacity = capacity
        self._size_of = size_of
        self._size = 0
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.RLock()
        # A fork waits for the lock: in the child, the thread that held it would never release it.
        leave = self._lock.release
        os.register_at_fork(before=self._lock.acquire, after_in_parent=leave, after_in_child=leave)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None if the cache does not hold it."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def forget(self, key: K) -> None:
        """Forget the value of a key, if there is one."""
        with self._lock:
            if key in self._values:
                self._size -= self._size_of(self._values.pop(key))

    def put(self, key: K, value: V) -> bool:
        """Store a value, unless it alone exceeds the capacity; return whether it is stored."""
        if self._size_of(value) > self._capacity:
            return False
        self.update(key, lambda _: value)
        return True

    def update(self, key: K, change: Callable[[V | None], V]) -> V:
        """
        Store and return ``change(value)``, where the value is None if the cache does not hold it.

        No other thread sees or changes the value in between. A value that alone exceeds the
        capacity is returned and not kept.
        """
        with self._lock:
            old = self._values.pop(key, None)
            new = change(old)
            self._values[key] = new
            self._size += self._size_of(new) - (0 if old is None else self._size_of(old))
            while self._size > self._capacity:
                _, evicted = self._values.popitem(last=False)
                self._size -= self._size_of(evicted)
            return new
