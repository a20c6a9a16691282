"""Task expire: retire a queue that is too old, and remove expired messages.

A queue is deactivated at the age of its setting `queue_expiry`. It is dropped twice that time after
its deactivation, or twice its `message_expiry` if it has no `queue_expiry`. Without both, it stays,
and keeps its name. It also stays while its sideline has messages, which only `sideline_expiry` or a
person removes, and while subscriptions or clones have its messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.queues import by_ids
from queue_core.errors import CatalogForbidden, NoSuchQueue
from queue_core.upkeep.tasks.task import TaskContext
from queue_core.values.model import QueueInfo
from queue_core.verbs.deactivate import deactivate
from queue_core.verbs.drop import drop
from queue_core.verbs.expire import expire, expiring

_log = logging.getLogger(__name__)


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages expired."""
    retire(context.catalog, queue)
    return expire(context.catalog, context.storage.uri, queue, in_parts=not context.asked_for)


def with_work(catalog: Catalog, queues: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return the queues that are too old, or may have expired messages; raises as `expire`."""
    clock.check(catalog)
    with catalog.read() as connection:
        chosen = expiring(connection, queues)
        there = by_ids(connection, [queue.id for queue in queues])
        now = dialect.read_clock(connection)
    chosen |= {queue.id for queue in there if _due(queue, now)}
    return [queue for queue in queues if queue.id in chosen]


def retire(catalog: Catalog, queue: QueueInfo) -> None:
    """Deactivate or drop a queue when it is due."""
    with catalog.read() as connection:
        # A process of many tasks may have read it hours ago.
        there, now = by_ids(connection, [queue.id]), dialect.read_clock(connection)
    verb = _due(there[0], now) if there else None
    if verb is None:
        return
    queue = there[0]
    # After the clock was read, so that a jump before the reading is noticed.
    clock.check(catalog)
    try:
        # Another process may have dropped it since, or a transaction of a caller keeps it locked.
        with suppress(NoSuchQueue, dialect.StillLocked):
            if verb is deactivate:
                deactivate(catalog, queue, "expire")
            else:
                drop(catalog, queue, "expire", keeps_sideline=True)
    except CatalogForbidden:
        _log.warning(
            "the time of queue %r is over: only the owner of the catalog or an operator may "
            "deactivate or drop it. Run expire in such a process, too",
            queue.name,
        )


def _due(queue: QueueInfo, now: int) -> Callable[..., object] | None:
    """Return the verb that is due for a queue at a time of the catalog; None: none."""
    settings = queue.settings
    lifetime = settings.queue_expiry or settings.message_expiry
    if queue.deactivated_at is None:
        expiry = settings.queue_expiry
        is_old = expiry is not None and now - queue.created_at >= expiry * 1e6
        return deactivate if is_old else None
    is_over = lifetime is not None and now - queue.deactivated_at >= 2 * lifetime * 1e6
    return drop if is_over else None
