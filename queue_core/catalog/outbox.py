"""The outbox of a transaction: the queues whose waiting threads its commit wakes.

A transaction of the catalog collects them, and sends one notification at its end. On PostgreSQL, it
sends it after the commit: a commit with a notification waits for all others, so that no two loads
could commit together. A process that dies in between sends none. Each waiting thread also looks
from time to time without a notification, so this only costs its next look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from queue_core.catalog.databases.interface import Dialect

#: Where a connection keeps its outbox; None: there is nothing to send.
_KEY = "ignis_outbox"
_ALL: frozenset[int] = frozenset()


@contextmanager
def sending(connection: Connection, dialect: Dialect) -> Iterator[None]:
    """Commit at the end of the block, and then send what it has collected, and not sent yet."""
    info = connection.info
    info[_KEY] = None
    try:
        yield
    finally:
        queue_ids = info.pop(_KEY, None)
    try:
        connection.commit()
    except AssertionError as error:
        # SQLAlchemy's own, if an interrupt has kept it from committing.
        raise error.__context__ or error from None
    if queue_ids is not None:
        _notify(connection, dialect, queue_ids)


def send_within(connection: Connection, dialect: Dialect) -> None:
    """Send what the transaction has collected as a part of it, unless it goes after the commit."""
    queue_ids = connection.info[_KEY]
    if queue_ids is not None and not dialect.notifies_alone:
        dialect.notify(connection, queue_ids)
        connection.info[_KEY] = None


def add(connection: Connection, queue_ids: Collection[int]) -> bool:
    """Add queues, or all if empty; return False for a transaction that does not send."""
    if _KEY not in connection.info:
        return False
    found: frozenset[int] | None = connection.info[_KEY]
    all_of_them = not queue_ids or found == _ALL
    connection.info[_KEY] = _ALL if all_of_them else (found or _ALL).union(queue_ids)
    return True


def _notify(connection: Connection, dialect: Dialect, queue_ids: Collection[int]) -> None:
    try:
        dialect.notify_alone(connection, queue_ids)
    except (DBAPIError, connection.dialect.loaded_dbapi.Error):
        # The transaction is committed. Those who wait look later.
        connection.invalidate()
