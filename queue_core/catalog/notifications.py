"""Wake the threads that wait for a change of the catalog.

PostgreSQL notifies its listeners. SQLite cannot, so each notification counts up a number in the
header of its file. SQLite also numbers its commits: a waiting thread reads that number from shared
memory, at no cost to the store, and looks for a notification only after a commit. The times of the
file would be wrong, because they change before a commit is visible.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from sqlalchemy import Connection
from sqlalchemy.exc import TimeoutError as PoolTimeout

from queue_core.catalog import connections, dialect, outbox
from queue_core.catalog.database import Catalog
from queue_core.catalog.databases.interface import Listener, QueueIds
from queue_core.errors import CatalogUnavailable


def notify(connection: Connection, *queue_ids: int) -> None:
    """Wake the threads that wait for some queues, at its commit; without ids, for all."""
    # Several parts of a transaction may have a reason, and one notification serves them all.
    if not outbox.add(connection, queue_ids):
        # A transaction of somebody else.
        dialect.of(connection).notify(connection, queue_ids)


class Watch(AbstractContextManager["Watch"]):
    """
    Reports when some queues may have changed; by default, any queues of the catalog.

    One per waiting thread; close it after use.
    """

    def __init__(self, catalog: Catalog, queue_ids: QueueIds | None = None) -> None:
        self._catalog = catalog
        self._queue_ids = queue_ids or _all_queues
        self._listener: Listener | None = None
        #: While the server has no connection left: the pauses, and when to try again.
        self._pauses: Iterator[float] | None = None
        self._next = 0.0

    def wait(self, seconds: float) -> bool:
        """
        Wait until the catalog may have changed; False when *seconds* passed without a change.

        The first call returns at once, because the catalog may have changed before. Raises
        `CatalogUnavailable`.
        """
        try:
            if self._listener is None:
                return self._begin(seconds)
            return self._listener.wait(seconds)
        except (self._catalog.engine.dialect.loaded_dbapi.Error, PoolTimeout) as error:
            self.close()
            raise CatalogUnavailable(f"{self._catalog!r}: {error}; try again later") from error

    def _begin(self, seconds: float) -> bool:
        """Listen; while the server has no connection left, only time counts."""
        end = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            if self._pauses is None or now >= self._next:
                try:
                    self._listener = dialect.listen(self._catalog.engine, self._queue_ids)
                except self._catalog.engine.dialect.loaded_dbapi.Error as error:
                    if not dialect.of(self._catalog.engine).errors.is_crowded(error):
                        raise
                    self._pauses = self._pauses or connections.pauses()
                    self._next = now + next(self._pauses)
                else:
                    self._pauses = None
                    return True
            if now >= end:
                return False
            time.sleep(max(min(self._next, end) - now, 0.0))

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __exit__(self, *_: object) -> None:
        self.close()


def _all_queues() -> None:
    return None
