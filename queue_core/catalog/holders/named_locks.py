"""Locks with a name, for rules that belong to no row of the catalog.

They last until the transaction ends. A database with one writer at a time needs none.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, select

from queue_core.catalog import dialect
from queue_core.catalog.tables import locks

#: The lock for writing reports, shared among writers.
REPORTING = "task_log"
#: The lock for the room of a bounded queue.
ROOM = "room"
#: Where a lock of the whole store has a queue's id.
STORE = 0


def share(connection: Connection, lock: str) -> None:
    """Take a lock of the store together with others; `try_alone` fails meanwhile."""
    if dialect.of(connection).writes_in_parallel:
        _lock_row(connection, lock, STORE, shared=True)


def try_alone(connection: Connection, lock: str) -> bool:
    """
    Take a lock of the store alone; return False if a transaction shares it.

    On a database that writes in parallel it needs a transaction that may write.
    """
    if not dialect.of(connection).writes_in_parallel:
        # A reader does not see the one transaction that writes.
        return True
    query = select(locks.c.name).where(_is_lock(lock, STORE))
    return connection.scalar(query.with_for_update(skip_locked=True)) is not None


def lock_room(connection: Connection, queue_id: int) -> None:
    """Wait for other transactions that load into a bounded queue, and keep new ones waiting."""
    if dialect.of(connection).writes_in_parallel:
        # The count before the commit must still be true at the commit. Locks of the queue's rows
        # would be wrong: firings take them too, and need not wait.
        _lock_row(connection, ROOM, queue_id, shared=False)


def _is_lock(name: str, queue_id: int) -> ColumnElement[bool]:
    return and_(locks.c.name == name, locks.c.queue_id == queue_id)


def _lock_row(connection: Connection, name: str, queue_id: int, *, shared: bool) -> None:
    """Lock a row of the table `locks`; make it if an older ignis made its queue."""
    query = select(locks.c.name).where(_is_lock(name, queue_id)).with_for_update(read=shared)
    if connection.scalar(query) is None:
        new = dialect.of(connection).insert_new(locks).values(name=name, queue_id=queue_id)
        connection.execute(new.on_conflict_do_nothing())
        connection.execute(query)
