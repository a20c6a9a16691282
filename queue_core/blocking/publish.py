"""Publish: load staged segments, and wait for room where the queue is bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from queue_core import faults
from queue_core.blocking.admission import admit
from queue_core.blocking.rendezvous import meet
from queue_core.capacity.bounds import OnFull
from queue_core.catalog import segments
from queue_core.catalog.database import Catalog
from queue_core.catalog.publications import is_new_batch
from queue_core.errors import QueueFull
from queue_core.model import QueueInfo, Staged
from queue_core.segments.storage import Storage
from queue_core.verbs.load import load

Result = TypeVar("Result")


_AS_SET = OnFull()


def publish(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    when_full: OnFull = _AS_SET,
) -> list[int]:
    """
    Load staged segments, each run of which has a shard; return the id of the first message of each.

    In a bounded queue as `admit` says. Raises `PublicationRefused` when a file was cleaned up
    meanwhile, `QueueDeactivated` and `QueueFull`; then nothing is loaded.
    """

    def attempt(waiter: int | None) -> list[int]:
        return _commit(
            catalog, lambda c: load(c, storage, queue, staged, waiter, when_full.overflow)
        )

    if queue.settings.is_rendezvous:
        return meet(catalog, queue, staged, attempt, when_full.timeout)
    try:
        return admit(catalog, storage.uri, queue, staged, attempt, when_full)
    except QueueFull:
        # Nothing was committed, for certain.
        for segment in staged:
            if segment.location is not None:
                storage.remove(segment.location)
        raise


def publish_once(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    query_id: str,
    batch_id: int,
    when_full: OnFull = _AS_SET,
) -> bool:
    """
    Load the batch of a streaming query, unless it was loaded before; tell whether it was now.

    A batch that is there already waits for no room, and leaves its staged files as garbage. Raises
    as `publish` does.
    """

    def work(connection: Connection, waiter: int | None) -> bool:
        fresh = is_new_batch(connection, queue.id, query_id, batch_id)
        if fresh:
            load(connection, storage, queue, staged, waiter, when_full.overflow)
        else:
            segments.discard_unpublished(connection, [s.location for s in staged if s.location])
        return fresh

    def attempt(waiter: int | None) -> bool:
        return _commit(catalog, lambda c: work(c, waiter))

    return admit(catalog, storage.uri, queue, staged, attempt, when_full)


def _commit(catalog: Catalog, work: Callable[[Connection], Result]) -> Result:
    """Load in one transaction."""

    def whole(connection: Connection) -> Result:
        result = work(connection)
        faults.point("load.before_commit")
        return result

    result = catalog.write(whole)
    faults.point("load.committed")
    return result
