"""The figures of a query's queues, which Spark shows in the query's progress."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import Connection

from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.slices import amounts, shard_locks
from queue_core.values.model import Magazine

#: Seconds for which figures are shown again. The sizes of messages are added up over all slices.
FRESH_SECONDS = 1.0
_SIZES_FRESH_SECONDS = 10.0


class Progress:
    """Reads the figures, and remembers them for a moment."""

    def __init__(self, store: StoreHandle, magazine: Magazine) -> None:
        self._store = store
        self._magazine = magazine
        self._found: dict[str, float | None] = {}
        self._read_at = self._sized_at = float("-inf")
        self._bytes: int | None = None

    def figures(self, queue_ids: Sequence[int]) -> dict[str, float | None]:
        """Return the figures of some queues together, at most a second old."""
        now = time.monotonic()
        if now - self._read_at > FRESH_SECONDS:
            with self._store.catalog.read() as connection:
                if now - self._sized_at > _SIZES_FRESH_SECONDS:
                    self._bytes = amounts.size(connection, queue_ids, self._magazine)
                    self._sized_at = now
                self._found = self._read(connection, queue_ids)
            self._read_at = time.monotonic()
        return self._found | {"bytes": self._bytes}

    def _read(self, connection: Connection, queue_ids: Sequence[int]) -> dict[str, float | None]:
        # Not at the top: a query's start does not wait for it.
        from queue_core.catalog.records import figures

        backlog = shard_locks.backlog(connection, queue_ids, self._magazine)
        rows = figures.read(connection, queue_ids)
        ages = [row.oldest_age / 1e6 for row in rows if row.oldest_age is not None]
        return {
            "waiting": sum(shard.waiting for shard in backlog.values()),
            "oldest_age": max(ages, default=None),
            "in_flight": sum(row.in_flight or 0 for row in rows),
            "sidelined": sum(row.sidelined or 0 for row in rows),
        }
