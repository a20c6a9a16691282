"""The waiting lines of a queue: callers that wait to load, or to fire.

Only the first waiter in a line tries, so no waiter overtakes an earlier one, in any process. (A
firing may in two cases: `queue_core/selection/line.py`; and a load, if it makes its own room.) A
waiter renews its row regularly. Others skip a row that was not renewed, or whose time lies too far
in the future because the clock was set back. The next waiter that joins removes such a row.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from queue_core.catalog import dialect, notifications
from queue_core.catalog.holder_tables import waiters
from queue_core.catalog.holders import leases

#: The two lines of a queue.
LOAD, FIRE = "load", "fire"
#: Seconds for which a waiter counts as alive after it has joined or renewed its row.
ALIVE_SECONDS = 5.0
#: The number of a caller that has not joined: it comes after all waiters.
LAST = (1 << 63) - 1

_HERE = (waiters.c.queue_id == bindparam("queue"), waiters.c.verb == bindparam("verb"))
_ALIVE = and_(
    waiters.c.alive_until > dialect.now(),
    ~leases.is_ahead(waiters.c.alive_until, ALIVE_SECONDS),
)
_AHEAD = select(func.count()).where(*_HERE, _ALIVE, waiters.c.id < bindparam("waiter"))
_LEAVE = delete(waiters).where(waiters.c.id == bindparam("waiter")).returning(waiters.c.queue_id)


def join(connection: Connection, queue_id: int, verb: str) -> int:
    """Join the end of a line; return the waiter's number."""
    here = {"queue": queue_id, "verb": verb}
    connection.execute(delete(waiters).where(*_HERE, ~_ALIVE), here)
    number = connection.scalar(
        insert(waiters)
        .values(queue_id=queue_id, verb=verb, joined_at=dialect.now(), alive_until=_soon())
        .returning(waiters.c.id)
    )
    assert number is not None, "an insert returns its number"
    return int(number)


def ahead(connection: Connection, queue_id: int, verb: str, waiter: int = LAST) -> int:
    """Return how many living waiters are before a waiter in a line."""
    here = {"queue": queue_id, "verb": verb, "waiter": waiter}
    return int(connection.scalar(_AHEAD, here) or 0)


def first_to_fire(connection: Connection, queue_ids: Collection[int]) -> tuple[int, int] | None:
    """Return the first living waiter of some queues, and its last sign of life."""
    these = dialect.one_of(waiters.c.queue_id, queue_ids), waiters.c.verb == FIRE, _ALIVE
    query = select(waiters.c.id, waiters.c.alive_until).where(*these).order_by(waiters.c.id)
    row = connection.execute(query.limit(1)).first()
    return None if row is None else (row.id, row.alive_until)


def ahead_in(queue_id: ColumnElement[int], verb: str) -> ScalarSelect[int]:
    """Return the same number for a queue, as a part of a statement with the parameter *waiter*."""
    here = (waiters.c.queue_id == queue_id, waiters.c.verb == verb)
    before = waiters.c.id < bindparam("waiter", type_=waiters.c.id.type)
    return select(func.count(waiters.c.id)).where(*here, _ALIVE, before).scalar_subquery()


def renew(connection: Connection, waiter: int) -> bool:
    """Keep a waiter alive; return False if it counted as dead and was removed."""
    renewed = connection.execute(
        update(waiters).where(waiters.c.id == waiter).values(alive_until=_soon())
    )
    return renewed.rowcount > 0


def leave(connection: Connection, waiter: int) -> None:
    """Leave the line, and wake the next waiter."""
    queue_id = connection.scalar(_LEAVE, {"waiter": waiter})
    if queue_id is not None:
        notifications.notify(connection, queue_id)


def _soon() -> ColumnElement[int]:
    return dialect.after(ALIVE_SECONDS)
