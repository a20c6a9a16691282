"""Wake the threads that wait for a change of the catalog.

PostgreSQL notifies its listeners. SQLite cannot, so each notification counts up a number that they
read, and a process touches the file after the commit: `databases/sqlite.py`.

A transaction of the catalog collects the queues whose waiting threads its commit wakes, and sends
one notification at its end. On PostgreSQL, it sends it after the commit: a commit with a
notification waits for all others, so that no two loads could commit together. A process that dies
in between sends none, and touches nothing. Each waiting thread also looks from time to time without
a notification, so this only costs its next look.
"""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from queue_core.catalog import dialect

#: Where a connection keeps its outbox: the queues that its transaction has collected.
_KEY = "ignis_outbox"


def notify(connection: Connection, *queue_ids: int) -> None:
    """Wake the threads that wait for some queues, at its commit."""
    # Several parts of a transaction may have a reason, and one notification serves them all.
    outbox: set[int] | None = connection.info.get(_KEY)
    if outbox is None:
        # A transaction of somebody else.
        dialect.of(connection).notify(connection, queue_ids)
        return
    outbox.update(queue_ids)


class Outbox:
    """Collects what the transaction of a connection is to tell until it is closed."""

    def __init__(self, connection: Connection) -> None:
        self._queue_ids: set[int] = set()
        self._info = connection.info
        self._info[_KEY] = self._queue_ids

    def close(self) -> None:
        """Collect no more."""
        # After an interrupt, this may run late, within another transaction of the connection.
        if self._info.get(_KEY) is self._queue_ids:
            del self._info[_KEY]

    def commit(self, connection: Connection, database: dialect.Dialect) -> None:
        """Commit the transaction, and then tell of what it has collected."""
        try:
            connection.commit()
        except AssertionError as error:
            # SQLAlchemy's own, if an interrupt has kept it from committing.
            raise error.__context__ or error from None
        if self._queue_ids:
            try:
                database.notify_committed(connection, self._queue_ids)
            except (DBAPIError, connection.dialect.loaded_dbapi.Error):
                # The transaction is committed. Those who wait look later.
                connection.invalidate()


def send_within(connection: Connection, database: dialect.Dialect) -> None:
    """Send what the transaction has collected as a part of it, unless it goes after the commit."""
    outbox: set[int] = connection.info[_KEY]
    if outbox and not database.notifies_alone:
        database.notify(connection, outbox)
