"""Publish: load staged segments, and wait while a bounded queue is full."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import named_locks
from queue_core.segments.stager import removed_if_refused
from queue_core.segments.storage import Storage
from queue_core.values.model import Batch, QueueInfo, Staged
from queue_core.verbs.capacity.bounds import OnFull
from queue_core.waiting.admission import Admission
from queue_core.waiting.bounded_load import commit_load, load_bounded
from queue_core.waiting.rendezvous import meet, meet_once
from queue_core.waiting.several import LoadIntoSeveral, Routed

_AS_SET = OnFull()


def publish(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    when_full: OnFull = _AS_SET,
    first: Callable[[Connection], object] | None = None,
    again: Callable[[], object] | None = None,
) -> list[int]:
    """
    Load staged segments, each run of which has a shard.

    A bounded queue admits them as *when_full* says. *first* does something else in the same
    transaction, before the load, which then waits for locks as usual. *again* puts others
    into the list *staged* if a file was cleaned up while the load waited. Returns the id of the
    first message of each segment. Raises `QueueDeactivated`, `QueueFull`, and without *again*
    `PublicationRefused` for such a file; then nothing is loaded.
    """

    def attempt(waiter: int | None) -> list[int]:
        def work(connection: Connection) -> list[int]:
            if first is not None:
                if queue.settings.is_bounded:
                    # This lock comes before those of any message.
                    named_locks.lock_room(connection, queue.id)
                first(connection)
            return load_bounded(connection, storage, queue, staged, waiter, when_full.overflow)

        timeout = when_full.timeout if first is None else None
        return commit_load(catalog, work, timeout, again)

    if queue.settings.is_rendezvous:
        assert first is None, "the messages would not be there before the commit"
        return meet(catalog, storage, queue, staged, when_full.timeout, again)
    with removed_if_refused(storage, staged):
        return Admission(catalog, storage, queue, staged, when_full).run(attempt)


def publish_once(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    batch: Batch,
    when_full: OnFull = _AS_SET,
) -> bool:
    """
    Load the batch of a streaming query, unless it was loaded before; return whether it is loaded.

    A batch that was loaded before needs no capacity, and its staged files become garbage. In a
    rendezvous, both wait until no message waits to be fired (`meet_once`). Raises as `publish`
    does, `StaleCheckpoint`, and `BadOption` if the query loaded it into another queue.
    """
    if queue.settings.is_rendezvous:
        return meet_once(catalog, storage, queue, staged, batch, when_full.timeout)

    loads = [Routed(queue, staged)]
    load = LoadIntoSeveral(catalog, storage, loads, when_full, batch, by_queue=True)
    return load.run() is not None
