"""Locks with a name, for rules that belong to no row of the catalog.

They last until the transaction ends. A database with one writer at a time needs none.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Select, select

from queue_core.catalog import dialect
from queue_core.catalog.tables import locks

#: The lock for writing reports, shared among writers.
REPORTING = "task_log"
#: The lock for the room of a bounded queue.
ROOM = "room"
#: The lock for the interests in a queue.
INTERESTS = "interests"
#: Where a lock of the whole store has a queue's id.
STORE = 0


def share(connection: Connection, lock: str) -> None:
    """Take a lock of the store together with others; `try_alone` fails meanwhile."""
    if dialect.of(connection).writes_in_parallel:
        connection.execute(_select(lock, STORE).with_for_update(read=True))


def try_alone(connection: Connection, lock: str) -> bool:
    """
    Take a lock of the store alone; return False if a transaction shares it.

    On a database that writes in parallel it needs a transaction that may write.
    """
    if not dialect.of(connection).writes_in_parallel:
        # A reader does not see the one transaction that writes.
        return True
    return connection.scalar(_select(lock, STORE).with_for_update(skip_locked=True)) is not None


def lock_room(connection: Connection, queue_id: int) -> None:
    """Wait for other transactions that load into a bounded queue, and keep new ones waiting."""
    if dialect.of(connection).writes_in_parallel:
        # The count before the commit must still be true at the commit. Locks of the queue's rows
        # would be wrong: firings take them too, and need not wait.
        connection.execute(_select(ROOM, queue_id).with_for_update())


def take(connection: Connection, lock: str, queue_ids: Sequence[int]) -> None:
    """Wait for a lock of each of some queues, and take them alone; they are made if need be."""
    if queue_ids and dialect.of(connection).writes_in_parallel:
        new = dialect.insert_new(connection, locks).on_conflict_do_nothing()
        rows = [{"name": lock, "queue_id": queue_id} for queue_id in sorted(queue_ids)]
        connection.execute(new, rows)
        these = (locks.c.name == lock, dialect.one_of(locks.c.queue_id, queue_ids))
        query = select(locks.c.queue_id).where(*these).order_by(locks.c.queue_id)
        connection.execute(query.with_for_update()).all()


def _select(name: str, queue_id: int) -> Select[str]:
    return select(locks.c.name).where(locks.c.name == name, locks.c.queue_id == queue_id)
