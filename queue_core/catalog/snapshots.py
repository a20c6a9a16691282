"""Snapshots of subscriptions: hidden queues, which keep a state of a subscription for some time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from queue_core.catalog import dialect, seals
from queue_core.catalog.tables import queues, slices
from queue_core.errors import BadOption
from queue_core.values.model import QueueInfo
from queue_core.values.names import nearest


def listed(connection: Connection, queue_id: int) -> Sequence[Row[Any]]:
    """Return the snapshots of a subscription, the oldest first."""
    messages = select(func.sum(slices.c.count)).where(slices.c.queue_id == queues.c.id)
    query = select(queues, func.coalesce(messages.scalar_subquery(), 0).label("messages"))
    mine = queues.c.snapshot_of == queue_id
    return connection.execute(query.where(mine).order_by(queues.c.created_at, queues.c.id)).all()


def name_of(row: Row[Any]) -> str:
    """Return the name of a snapshot."""
    return str(row.name.partition("@")[2])


def find(connection: Connection, queue: QueueInfo, to: int | str) -> Row[Any] | None:
    """Return the row of the snapshot to which a seek goes; None: to a place. Raises `BadOption`."""
    if isinstance(to, int) or to in ("earliest", "latest"):
        return None
    found = {name_of(row): row for row in listed(connection, queue.id)}
    if to not in found:
        raise BadOption(f"queue {queue.name!r} has no snapshot {to!r}{nearest(to, found)}")
    return found[to]


def ended(connection: Connection, queue_ids: Collection[int]) -> dict[int, int]:
    """Return the snapshots whose time is over, each with the one of some queues that it reads."""
    over = (queues.c.snapshot_of != 0, queues.c.ends_at.between(1, dialect.now()))
    query = select(queues.c.id, queues.c.root_id)
    found = connection.execute(query.where(dialect.one_of(queues.c.root_id, queue_ids), *over))
    return {row.id: row.root_id for row in found}


def attach(connection: Connection, queue_id: int, detached_at: int = 0) -> None:
    """Note that a subscription is attached to its log, or since when it was not in a snapshot."""
    values = {"detached_at": detached_at, "ends_at": -dialect.read_clock(connection)}
    seals.change(connection, queues, queues.c.id == queue_id, **values)
