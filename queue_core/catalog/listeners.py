"""Hear of the commits of other connections, as each database allows.

Each listener owns a connection outside of transactions. `dialect.listen` chooses the listener.
"""

from __future__ import annotations

import math
import time
from typing import Any, Protocol

#: Seconds between two readings of SQLite's number: far cheaper than a transaction, and too short to
#: be noticed in a hand-over.
GLANCE_SECONDS = 0.02


class Listener(Protocol):
    """Hears when the catalog may have changed."""

    def wait(self, seconds: float) -> bool:
        """Wait for a commit; False when *seconds* passed without one."""

    def close(self) -> None:
        """Stop listening."""


class SqliteListener:
    """Compares the number of SQLite's last commit; commits of its own connection do not count."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._seen = self._version()

    def wait(self, seconds: float) -> bool:
        """Wait for a commit; False when *seconds* passed without one."""
        end = time.monotonic() + seconds
        while (version := self._version()) == self._seen:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(GLANCE_SECONDS, left))
        self._seen = version
        return True

    def close(self) -> None:
        """Stop listening."""
        self._driver.close()

    def _version(self) -> int:
        return int(self._driver.execute("PRAGMA data_version").fetchone()[0])


class PostgresListener:
    """Waits for notifications on a channel."""

    def __init__(self, driver: Any, channel: str) -> None:
        self._driver = driver
        driver.autocommit = True
        driver.execute(f"LISTEN {channel}")
        # A notification may take as long as it likes.
        driver.answer_seconds = math.inf

    def wait(self, seconds: float) -> bool:
        """Wait for a notification; False when *seconds* passed without one."""
        heard = any(True for _ in self._driver.notifies(timeout=seconds, stop_after=1))
        if heard:
            # Those that came meanwhile add nothing.
            for _ in self._driver.notifies(timeout=0):
                pass
        return heard

    def close(self) -> None:
        """Stop listening."""
        self._driver.close()
