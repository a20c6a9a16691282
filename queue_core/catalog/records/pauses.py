"""Pauses of queues: a paused queue fires nothing, and takes loads.

A queue is paused by a person, which its row records, or because its setting ``concurrency`` is 0.
A firing reads the row when it begins, so a firing that has already begun may still end.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from queue_core.catalog import dialect, notifications, seals
from queue_core.catalog.queues import find, hold, settings_of
from queue_core.catalog.records import acts
from queue_core.catalog.tables import queues
from queue_core.values.model import QueueInfo


def pause(connection: Connection, queue: QueueInfo) -> QueueInfo:
    """Pause a queue; a second call keeps the first time. Raises `QueueDeactivated`."""
    hold(connection, queue, alone=True)
    now = dialect.read_clock(connection)
    running = (queues.c.id == queue.id, queues.c.paused_at.is_(None))
    if seals.change(connection, queues, *running, paused_at=now):
        acts.note(connection)
    return find(connection, queue.name)


def resume(connection: Connection, queue: QueueInfo) -> QueueInfo:
    """Let a queue fire again, and notify those who wait. Raises `QueueDeactivated`."""
    hold(connection, queue, alone=True)
    paused = (queues.c.id == queue.id, queues.c.paused_at.is_not(None))
    if seals.change(connection, queues, *paused, paused_at=None):
        acts.note(connection)
    notifications.notify(connection, queue.id)
    return find(connection, queue.name)


def is_paused(row: Any) -> bool:
    """Return whether a queue is paused, from its row with ``name``, ``settings``, ``paused_at``."""
    return not concurrency(row)


def concurrency(row: Any) -> int:
    """Return the setting ``concurrency`` from the same row; 0 if a person has paused the queue."""
    return 0 if row.paused_at is not None else settings_of(row.name, row.settings).concurrency
