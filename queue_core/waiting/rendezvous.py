"""Rendezvous: a load into a queue that keeps no messages waits until its messages are fired.

Changes: the first load in line offers its messages. When its time is up, or its waiting is
interrupted, one transaction withdraws the messages that no consumer has fired. Guard: the line; for
the withdrawal, the locks of the shards. Crash while the offer waits: its messages stay loaded, and
the next load in line does not wait for them. A batch of a streaming query is not withdrawn: Spark
repeats it after a failure or a crash, and its commit then waits on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import waiters
from queue_core.catalog.records.publications import is_new_load
from queue_core.catalog.slices import shard_locks
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import WAITING, in_queue
from queue_core.catalog.slices.segments import discard_unpublished
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.slices.usage import read_usage
from queue_core.errors import (
    CatalogUnavailable,
    IgnisError,
    QueueDeactivated,
    QueueFull,
    Unavailable,
)
from queue_core.segments.stager import remove_staged, removed_if_refused
from queue_core.segments.storage import Storage
from queue_core.selection.request import FireRequest
from queue_core.selection.rounds import still_there
from queue_core.support import faults
from queue_core.values.ids import IdSet, ids_from
from queue_core.values.model import Batch, Magazine, QueueInfo, Staged
from queue_core.values.plan import Taken, messages_in
from queue_core.verbs.capacity.bounds import CapacityExceeded, amount_of, full_message
from queue_core.verbs.capacity.wait_line import WaitLine
from queue_core.waiting.bounded_load import commit_load, load_bounded

Result = TypeVar("Result")


def meet(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    timeout: float | None,
    again: Callable[[], object] | None,
) -> list[int]:
    """
    Load staged segments, and wait until all of their messages are fired.

    *again* is as in `RoutedLoad`. Returns the id of the first message of each segment. Raises
    `QueueFull` if some messages were not fired within *timeout* seconds, and `QueueDeactivated` if
    the queue was deactivated before; those are withdrawn, and the others stay fired. With 0 seconds
    nothing is loaded. Raises `NoSuchQueue` if the queue was dropped. Withdraws them after any other
    error, too; if it cannot, the `CatalogUnavailable` that it raises has an unknown outcome.
    """

    def is_met(connection: Connection) -> tuple[Hashable, bool]:
        left = messages_in(_waiting(connection, queue, offered, None))
        if left:
            # Nobody fires the rest if the queue was deactivated.
            queues.check_in_use(connection, queue.id)
        else:
            # They went with the queue if it was dropped.
            queues.still_there(connection, queue)
        return left, not left

    def work(connection: Connection) -> list[int]:
        return load_bounded(connection, storage, queue, staged, line.waiter)

    fired = 0
    first_ids: list[int] | None = None
    with WaitLine(catalog, queue, waiters.LOAD, timeout) as line:
        faults.point("load.waiting")
        if timeout != 0:
            with removed_if_refused(storage, staged):
                first_ids = _in_turn(
                    line, queue, lambda: commit_load(catalog, work, timeout, again)
                )
        if first_ids is not None:
            faults.point("load.offered")
            offered = IdSet.of(ids_from(first_ids, staged))
            withdraw = partial(_withdraw, queue=queue, offered=offered)
            try:
                with suppress(QueueDeactivated):
                    if line.wait(is_met, first=False):
                        return first_ids
            except BaseException as error:
                # An outage, Ctrl-C or the time limit of a handler: its caller may load them again.
                left = len(offered)
                with suppress(IgnisError):
                    left -= catalog.write(withdraw)
                if left and isinstance(error, Unavailable):
                    raise _in_doubt(queue) from error
                raise
            try:
                withdrawn = catalog.write(withdraw)
            except Unavailable as error:
                raise _in_doubt(queue) from error
            faults.point("load.withdrawn")
            if not withdrawn:
                return first_ids
            fired = len(offered) - withdrawn
        else:
            remove_staged(storage, staged)
    with catalog.read() as connection:
        message = full_message(queue, read_usage(connection, queue), amount_of(staged))
    raise QueueFull(
        f"{message}; {fired} of the messages were fired, and are loaded" if fired else message
    )


def meet_once(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    batch: Batch,
    timeout: float | None,
) -> bool:
    """
    Load the batch of a streaming query, unless it was loaded before, and wait for its firing.

    It is met when no message of the queue waits. Returns whether the batch is new. Raises
    `QueueFull` if messages still wait after *timeout* seconds, and `QueueDeactivated`; the messages
    stay loaded, and the batch comes again. Raises also what `is_new_load` raises.
    """

    def attempt(connection: Connection) -> bool:
        is_new = is_new_load(connection, queue, batch)
        if is_new and staged:
            load_bounded(connection, storage, queue, staged, line.waiter)
        elif staged:
            discard_unpublished(connection, staged)
        return is_new

    def is_met(connection: Connection) -> tuple[Hashable, bool]:
        found = fetch(connection, *in_queue(queue.id, Magazine.MAIN), *WAITING)
        left = sum(len(piece.rows) for piece in found)
        if left:
            queues.check_in_use(connection, queue.id)
        return left, not left

    with WaitLine(catalog, queue, waiters.LOAD, timeout) as line:
        faults.point("load.waiting")
        with removed_if_refused(storage, staged):
            is_new = _in_turn(line, queue, lambda: commit_load(catalog, attempt, timeout))
        if is_new is not None:
            faults.point("load.offered")
            if not staged or line.wait(is_met, first=False):
                return is_new
    with catalog.read() as connection:
        message = full_message(queue, read_usage(connection, queue), amount_of(staged))
    raise QueueFull(f"{message}; the batch stays, and waits on when the query is started again")


def _in_turn(line: WaitLine, queue: QueueInfo, load: Callable[[], Result]) -> Result | None:
    """Load when it is the turn of this load; return None if the time is up before."""
    while line.wait(partial(_is_open, queue)):
        # One ahead of it that counted as dead may be back.
        with suppress(CapacityExceeded):
            return load()
    return None


def _is_open(queue: QueueInfo, connection: Connection) -> tuple[Hashable, bool]:
    """
    Raise `QueueDeactivated` for a queue that was deactivated meanwhile.

    Raises `CatalogForbidden` for a role that could not see afterwards whether messages are fired.
    """
    read_usage(connection, queue)
    fetch(connection, *in_queue(queue.id, Magazine.MAIN), *WAITING)
    return None, True


def _in_doubt(queue: QueueInfo) -> CatalogUnavailable:
    doubt = CatalogUnavailable(
        f"queue {queue.name!r}: the catalog could not be reached while the load waited for a "
        "consumer; its messages may wait or be fired: look before you load them again"
    )
    doubt.outcome_unknown = True
    return doubt


def _withdraw(connection: Connection, queue: QueueInfo, offered: IdSet) -> int:
    shard_locks.lock(connection, [queue.id])
    changes = Changes([queue])
    withdrawn = 0
    for piece, rows in _waiting(connection, queue, offered, "wait"):
        changes.remove(piece, rows, "dropped")
        withdrawn += len(rows)
    if not withdrawn:
        # They were fired, unless the queue was dropped meanwhile.
        queues.still_there(connection, queue)
    changes.apply(connection)
    faults.point("load.before_withdrawal")
    return withdrawn


def _waiting(
    connection: Connection, queue: QueueInfo, offered: IdSet, lock: str | None
) -> list[Taken]:
    """Return the offered messages that no consumer has fired, even if compaction moved them."""
    return still_there(connection, FireRequest(queue_ids=(queue.id,)), offered, lock)
