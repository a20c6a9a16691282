"""Redrive: move a part of the sideline to main or to another queue, at a person's wish.

Changes: to main, slices of the sideline become slices at the tail of main, as in a shovel. To
another queue, the messages are read and written into segments of that queue. One transaction then
loads these and removes the messages here, so that each message is in exactly one of the queues. Its
id, its attempts and its time of loading are new there. Guard: the locks of the sideline's shards.
If a message of the part was fired, settled or moved since it was read, nothing is changed, and the
part is read again. A job also locks its own row, so a job that was cancelled or taken over moves
nothing. Crash before the commit: the messages are in the sideline, and vacuum removes the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import acts
from queue_core.catalog.slices import id_map, read_plans
from queue_core.catalog.slices.moves import SHOVELLED, carry_out
from queue_core.catalog.transact import Guard, transact
from queue_core.errors import BadOption
from queue_core.segments.distributor import Distributor
from queue_core.segments.reader import read_table
from queue_core.segments.stager import removed_if_refused
from queue_core.segments.storage import Storage
from queue_core.selection.acquire import acquire
from queue_core.selection.request import Candidates, FireRequest
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo, Staged
from queue_core.values.schema import conform
from queue_core.verbs.capacity.bounds import CapacityExceeded, check_capacity
from queue_core.verbs.load import load
from queue_core.verbs.shovel import move_some

#: The most bytes that one step copies to another queue, as uncompressed Arrow data.
STEP_BYTES = 32 << 20

#: Called in the transaction with the number of moved messages.
Note = Callable[[Connection, int], None]


class _Changed(Exception):
    """Some messages of a part were fired, settled or moved since they were read."""


def redrive(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    target: QueueInfo | None,
    request: FireRequest,
    candidates: Candidates | None,
    *,
    guard: Guard | None = None,
    note: Note | None = None,
) -> int | None:
    """
    Move messages that *request* describes, in one transaction; *target* None is main.

    Return how many were moved; None: the target has no room for any. Raises what *guard* raises,
    `DamagedSegment`, `SchemaMismatch` or `BadOption` for a message that never fits the target,
    `QueueDeactivated`, and `SettingsChanged` if the target has other settings by now.
    """
    if target is None:

        def work(connection: Connection) -> int | None:
            moved = move_some(connection, queue, request, candidates, request.max_messages)
            if moved and note is not None:
                note(connection, moved)
            acts.note(connection, moved or 0)
            return moved

        return transact(catalog, "redrive", work, guard)
    request = replace(request, max_bytes=min(request.max_bytes or STEP_BYTES, STEP_BYTES))
    while True:
        with catalog.read() as connection:
            # With all columns that the messages can have.
            queue = queues.still_there(connection, queue)
            taken = acquire(connection, request, None, candidates).taken
            if not taken:
                return 0
            plan = read_plans.build(connection, [queue], taken, storage.uri)
            ids = IdSet.of(id_map.ids_of(connection, taken))
        rows = read_table(plan, queue.schema.names)
        table = conform(rows, target.schema, target.name, mends=True)
        staged, _ = Distributor(storage).staged(target, table)
        try:
            others = (queues.SettingsChanged, _Changed, CapacityExceeded)
            with removed_if_refused(storage, staged, *others):
                return _hand_over(catalog, storage, queue, target, ids, staged, guard, note)
        except _Changed:
            request = replace(request, max_messages=max(len(ids) // 2, 1))
        except CapacityExceeded as error:
            if len(ids) == 1:
                if error.can_wait:
                    return None
                raise BadOption(str(error)) from error
            request = replace(request, max_messages=len(ids) // 2)


def _hand_over(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    target: QueueInfo,
    ids: IdSet,
    staged: list[Staged],
    guard: Guard | None,
    note: Note | None,
) -> int:
    """Load the copies there, and remove the messages here; raises `_Changed` if one has left."""

    def work(connection: Connection) -> int:
        # The lock of the target's room comes before the shard locks.
        check_capacity(connection, target, staged, overflow="fail")
        here = FireRequest(queue_ids=(queue.id,), magazine=Magazine.SIDELINE)
        taken = acquire(connection, here, "wait", Candidates(ids)).taken
        if sum(len(rows) for _, rows in taken) != len(ids):
            raise _Changed
        load(connection, storage, target, staged)
        away = SHOVELLED._replace(to=None, place=f"queue {target.name}")
        moved = carry_out(connection, queue, away, taken)
        if note is not None:
            note(connection, moved)
        acts.note(connection, moved)
        return moved

    return transact(catalog, "redrive", work, guard, grows=True)
