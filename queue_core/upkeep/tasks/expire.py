"""Task expire: retire a queue that is too old, and remove expired messages.

A queue is deactivated at the age of its setting `queue_expiry`. It is dropped twice that time after
its deactivation, or twice its `message_expiry` if it has no `queue_expiry`. Without both, it stays,
and keeps its name. It also stays while its sideline has messages, which only `sideline_expiry` or a
person removes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.queues import Ages, as_it_is
from queue_core.catalog.queues import ages as queue_ages
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
        ages = queue_ages(connection, [queue.id for queue in queues])
    chosen |= {queue.id for queue in queues if queue.id in ages and _due(queue, ages[queue.id])}
    return [queue for queue in queues if queue.id in chosen]


def retire(catalog: Catalog, queue: QueueInfo) -> None:
    """Deactivate or drop a queue when it is due."""
    with catalog.read() as connection:
        # A process of many tasks may have read it hours ago.
        queue = as_it_is(connection, queue)
        ages = queue_ages(connection, [queue.id])
    verb = _due(queue, ages[queue.id]) if ages else None
    if verb is None:
        return
    # After the ages were read, so that a jump before the reading is noticed.
    clock.check(catalog)
    try:
        if verb is deactivate:
            deactivate(catalog, queue)
        else:
            # Another process may have dropped it since.
            with suppress(NoSuchQueue):
                drop(catalog, queue, "expire", keeps_sideline=True)
    except CatalogForbidden:
        _log.warning(
            "the time of queue %r is over: only the owner of the catalog or an operator may "
            "deactivate or drop it. Run expire in such a process, too",
            queue.name,
        )


def _due(queue: QueueInfo, ages: Ages) -> Callable[..., object] | None:
    """Return the verb that is due for a queue; None: none."""
    settings = queue.settings
    lifetime = settings.queue_expiry or settings.message_expiry
    if ages.deactivated is None:
        is_old = settings.queue_expiry is not None and ages.created >= settings.queue_expiry * 1e6
        return deactivate if is_old else None
    is_over = lifetime is not None and ages.deactivated >= 2 * lifetime * 1e6
    return drop if is_over else None
