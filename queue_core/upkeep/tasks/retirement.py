"""Retirement: deactivate queues that are too old, and later drop them, as a part of the expiry.

A queue is deactivated at the age of its setting `queue_expiry`. It is dropped twice that time after
its deactivation, or twice its `message_expiry` if it has no `queue_expiry`. Without both, it stays,
and keeps its name. It also stays while its sideline has messages, which only `sideline_expiry` or a
person removes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import Connection, select

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.tables import queues as queue_rows
from queue_core.errors import NoSuchQueue
from queue_core.values.model import QueueInfo
from queue_core.verbs.deactivate import deactivate
from queue_core.verbs.drop import drop


def retire(catalog: Catalog, queue: QueueInfo) -> None:
    """Deactivate or drop a queue when it is due."""
    with catalog.read() as connection:
        ages = _ages(connection, [queue])
    if not ages:
        return
    # After the ages were read, so that a jump before the reading is noticed.
    clock.check(catalog)
    verb = _due(queue, ages[queue.id])
    if verb is deactivate:
        deactivate(catalog, queue)
    elif verb is drop:
        # Another process may have dropped it since.
        with suppress(NoSuchQueue):
            drop(catalog, queue, "expire", keeps_sideline=True)


def retiring(connection: Connection, queues: Sequence[QueueInfo]) -> set[int]:
    """Return the ids of the queues that are due."""
    ages = _ages(connection, queues)
    return {queue.id for queue in queues if queue.id in ages and _due(queue, ages[queue.id])}


class _Ages(NamedTuple):
    """Microseconds since a queue was created, and since it was deactivated."""

    created: int
    deactivated: int | None


def _ages(connection: Connection, queues: Sequence[QueueInfo]) -> dict[int, _Ages]:
    ages = select(
        queue_rows.c.id,
        (dialect.now() - queue_rows.c.created_at).label("created"),
        (dialect.now() - queue_rows.c.deactivated_at).label("deactivated"),
    ).where(dialect.of(connection).one_of(queue_rows.c.id, [queue.id for queue in queues]))
    return {row.id: _Ages(row.created, row.deactivated) for row in connection.execute(ages)}


def _due(queue: QueueInfo, ages: _Ages) -> Callable[..., object] | None:
    """Return the verb that is due for a queue; None: none."""
    settings = queue.settings
    lifetime = settings.queue_expiry or settings.message_expiry
    if ages.deactivated is None:
        is_old = settings.queue_expiry is not None and ages.created >= settings.queue_expiry * 1e6
        return deactivate if is_old else None
    is_over = lifetime is not None and ages.deactivated >= 2 * lifetime * 1e6
    return drop if is_over else None
