"""Waking those who wait for a change of the catalog.

PostgreSQL tells its listeners. SQLite cannot, but it numbers what is committed: looking at that
number is a glance at shared memory, so a waiting consumer costs the store nothing. The times of its
files would not do, since they change when a commit is written, which is before it can be seen.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, text

from queue_core.catalog.database import Catalog
from queue_core.errors import CatalogUnavailable

CHANNEL = "ignis"
#: How often it is looked whether a SQLite catalog has changed.
LOOK_SECONDS = 0.02


def notify(connection: Connection, queue: str) -> None:
    """Wake whoever waits for this catalog, once the transaction commits."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_notify(:c, :q)"), {"c": CHANNEL, "q": queue})


class Watch(AbstractContextManager["Watch"]):
    """Tells when the catalog may have changed. One per waiting thread; close it after use."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._connection: Any = None
        self._seen: int | None = None

    def changed(self) -> bool:
        """Whether the catalog may have changed since this was last asked."""
        return self.wait(0.0)

    def wait(self, seconds: float) -> bool:
        """
        Wait until the catalog may have changed; False when *seconds* passed without.

        The first call returns at once: anything may have changed before. Raises
        `CatalogUnavailable`.
        """
        listen = self._look if self._catalog.file is not None else self._hear
        try:
            if self._connection is None:
                self._connection = self._connect()
                listen(0.0)
                return True
            return listen(seconds)
        except self._catalog.engine.dialect.loaded_dbapi.Error as error:
            self._connection = None
            raise CatalogUnavailable(f"{self._catalog!r}: {error}; try again later") from error

    def close(self) -> None:
        """Stop listening."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self, seconds: float) -> bool:
        """Look at the number of SQLite's last commit, that of this connection left out."""
        end = time.monotonic() + seconds
        while (version := self._version()) == self._seen:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(LOOK_SECONDS, left))
        self._seen = version
        return True

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _hear(self, seconds: float) -> bool:
        """Wait for a notification of PostgreSQL's."""
        heard = any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))
        if heard:
            # Those that came meanwhile say nothing more.
            for _ in self._connection.notifies(timeout=0):
                pass
        return heard

    def _connect(self) -> Any:
        # A connection of its own, outside of transactions.
        connection = self._catalog.engine.raw_connection()
        driver = connection.driver_connection
        connection.detach()
        assert driver is not None
        if self._catalog.file is None:
            driver.autocommit = True
            driver.execute(f"LISTEN {CHANNEL}")
        return driver
