"""The transaction of a load: check the capacity, load, evict from a ring, leave the line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import waiters
from queue_core.catalog.queues import hold_settings
from queue_core.errors import PublicationRefused
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.values.model import QueueInfo, Staged
from queue_core.verbs.capacity.bounds import check_capacity
from queue_core.verbs.capacity.eviction import evict_oldest
from queue_core.verbs.load import load

Result = TypeVar("Result")


class Loading(NamedTuple):
    """What a transaction loads into one queue; *waiter* is as in `check_capacity`."""

    queue: QueueInfo
    staged: Sequence[Staged]
    waiter: int | None = None


def load_bounded(
    connection: Connection,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    waiter: int | None = None,
    overflow: str | None = None,
) -> list[int]:
    """
    Load staged segments if they fit into the queue, within a transaction.

    *waiter* and *overflow* are as in `check_capacity`. Returns and raises as `load` does; raises
    also `CapacityExceeded`.
    """
    (first_ids,) = load_all(connection, storage, [Loading(queue, staged, waiter)], overflow)
    return first_ids


def load_all(
    connection: Connection,
    storage: Storage,
    loads: Sequence[Loading],
    overflow: str | None = None,
) -> list[list[int]]:
    """Do the same for several queues, in the order of their ids."""
    overruns = []
    for queue, staged, waiter in loads:
        if queue.settings.is_bounded:
            # Its bound must be the present one.
            hold_settings(connection, queue)
        overruns.append(check_capacity(connection, queue, staged, waiter, overflow))
    first_ids = []
    for (queue, staged, waiter), overrun in zip(loads, overruns, strict=True):
        first_ids.append(load(connection, storage, queue, staged))
        if overrun is not None:
            evict_oldest(connection, queue, overrun)
        # The load of a rendezvous stays first in line until its messages are fired.
        if waiter is not None and not queue.settings.is_rendezvous:
            waiters.leave(connection, waiter)
    return first_ids


def commit_load(
    catalog: Catalog,
    work: Callable[[Connection], Result],
    timeout: float | None = None,
    again: Callable[[], object] | None = None,
) -> Result:
    """
    Run the *work* of a load in one transaction, between the crash points of a load.

    *timeout* also limits its waits for locks. Those of other loads take milliseconds. *again* is
    called before a second try if files are gone: a load may wait in line for longer than vacuum
    leaves them alone.
    """

    def transaction(connection: Connection) -> Result:
        result = work(connection)
        faults.point("load.before_commit")
        return result

    try:
        result = catalog.write(transaction, grows=True, seconds=timeout)
    except PublicationRefused:
        if again is None:
            raise
        again()
        return commit_load(catalog, work, timeout)
    faults.point("load.committed")
    return result
