"""Wake the threads that wait for a change of the catalog.

PostgreSQL notifies its listeners. SQLite cannot, so each notification counts up a number in the
header of its file. SQLite also numbers its commits: a waiting thread reads that number from shared
memory, at no cost to the store, and looks for a notification only after a commit. The times of the
file would be wrong, because they change before a commit is visible.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from sqlalchemy import Connection
from sqlalchemy.exc import TimeoutError as PoolTimeout

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.databases.interface import Listener
from queue_core.errors import CatalogUnavailable

CHANNEL = "ignis"
#: Where a connection keeps the last transaction that has sent a notification.
_NOTIFIED = "ignis_notified"


def notify(connection: Connection) -> None:
    """Wake all threads that wait for this catalog when the transaction commits."""
    transaction = connection.get_transaction()
    # Several parts of a transaction may have a reason, and one notification serves them all.
    if connection.info.get(_NOTIFIED) is not transaction:
        dialect.of(connection).notify(connection, CHANNEL)
        connection.info[_NOTIFIED] = transaction


class Watch(AbstractContextManager["Watch"]):
    """Reports when the catalog may have changed. One per waiting thread; close it after use."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._listener: Listener | None = None

    def wait(self, seconds: float) -> bool:
        """
        Wait until the catalog may have changed; False when *seconds* passed without a change.

        The first call returns at once, because the catalog may have changed before. Raises
        `CatalogUnavailable`.
        """
        try:
            if self._listener is None:
                self._listener = dialect.listen(self._catalog.engine, CHANNEL)
                return True
            return self._listener.wait(seconds)
        except (self._catalog.engine.dialect.loaded_dbapi.Error, PoolTimeout) as error:
            self.close()
            raise CatalogUnavailable(f"{self._catalog!r}: {error}; try again later") from error

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __exit__(self, *_: object) -> None:
        self.close()
