"""Load within the caller's transaction: its rows and the messages are committed together.

Changes: those of a load or a smart load. Guard: as for them, and every lock lasts until the caller
commits. A policy and a de-duplication decide with the shards locked, since a decision outside of
the transaction could not see the caller's changes. The load never waits for room: consumers that
would free it may wait for the caller. Crash or rollback: no slice names the files, and vacuum
removes them.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.callers import CallersCatalog
from queue_core.errors import BadOption, QueueFull
from queue_core.segments.stager import remove_staged, removed_if_refused
from queue_core.segments.storage import Storage
from queue_core.values.ids import ids_from
from queue_core.values.model import QueueInfo, Staged
from queue_core.values.rows import Numbers
from queue_core.verbs.capacity.bounds import CapacityExceeded
from queue_core.waiting.bounded_load import load_bounded
from queue_core.waiting.smart.decide import LoadPolicy
from queue_core.waiting.smart.incoming import IncomingRows
from queue_core.waiting.smart.load import SmartLoad, load_rows

#: Stages rows; the number, if there is one, picks the shard in a queue without a key.
Stage = Callable[[pa.Table, int | None], tuple[list[Staged], Numbers]]


def load(
    catalog: CallersCatalog,
    storage: Storage,
    queue: QueueInfo,
    table: pa.Table,
    load_policy: LoadPolicy | None,
    stage: Stage,
) -> pa.Array:
    """
    Load the rows of a table; return their ids, null for rows that a policy leaves out.

    Raises as `publish` and `SmartLoad.run` do, and `BadOption` for a queue that keeps no messages,
    or whose rules need transactions in which each statement sees all that is committed.
    """
    _check(catalog, queue, load_policy)
    turn = catalog.turn

    def staged(rows: pa.Table) -> tuple[list[Staged], Numbers]:
        return stage(rows, turn)

    if load_policy is not None:
        incoming = IncomingRows(queue, storage, table, staged)
        return load_rows(SmartLoad(catalog, storage, queue, load_policy, incoming), incoming, None)
    segments, order = staged(table)

    def work(connection: Connection) -> list[int]:
        try:
            return load_bounded(connection, storage, queue, segments)
        except CapacityExceeded as error:
            raise QueueFull(str(error)) from error

    try:
        with removed_if_refused(storage, segments):
            first_ids = catalog.write(work, grows=True)
    except queues.SettingsChanged:
        remove_staged(storage, segments)
        raise
    return pa.array(ids_from(first_ids, segments)[order], pa.int64())


def _check(catalog: CallersCatalog, queue: QueueInfo, load_policy: LoadPolicy | None) -> None:
    if queue.settings.is_rendezvous:
        raise BadOption(
            f"queue {queue.name!r} keeps no messages (max_size=0), so a load waits until they are "
            "fired, which cannot happen before your transaction is committed; load without "
            "Queue.within, or raise max_size"
        )
    ruled = queue.settings.is_bounded or load_policy is not None
    if ruled and not catalog.sees_commits():
        raise BadOption(
            f"queue {queue.name!r} has a bound, a policy or dedup, and the transaction of "
            "connection cannot see what others have committed since it began; use the isolation "
            "level READ COMMITTED"
        )
