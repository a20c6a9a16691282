"""Drop: remove a deactivated queue and free its name.

Changes: all rows of the queue are deleted and its files become garbage, in one transaction. The
vacuum removes the keys of its de-duplication. A breaker with its name closes, and open jobs that
move messages into it fail. A report of the store counts the messages. Guard: the queue is
deactivated, which cannot be undone. Of two that drop it at once, the second finds it gone. Crash
before the commit: nothing was removed.
"""

from __future__ import annotations

from sqlalchemy import Connection, Table, delete, func, select

from queue_core.catalog import queues as queues_of
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import breakers
from queue_core.catalog.records import jobs as open_jobs
from queue_core.catalog.records import schedule as schedule_of
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import turns as turns_of
from queue_core.catalog.slices.segments import release
from queue_core.catalog.tables import (
    allotments,
    counters,
    failures,
    id_map,
    interests,
    jobs,
    lanes,
    locks,
    publications,
    queues,
    schedule,
    schemas,
    segments,
    shards,
    slices,
    task_log,
    turns,
    waiters,
)
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption
from queue_core.values.model import Magazine, QueueInfo

#: In the order in which all verbs lock them; then tables whose rows no other verb locks.
_FIRST: tuple[Table, ...] = (turns, slices)
_THEN: tuple[Table, ...] = (
    queues,
    interests,
    shards,
    lanes,
    counters,
    id_map,
    failures,
    waiters,
    publications,
    task_log,
    schedule,
    jobs,
    schemas,
    locks,
)


def drop(
    catalog: Catalog, queue: QueueInfo, task: str = "by_hand", *, keeps_sideline: bool = False
) -> int:
    """
    Remove a deactivated queue with its messages, and report them as moved by *task*.

    With *keeps_sideline*, a queue with messages in its sideline stays. Returns how many messages
    were removed. Raises `BadOption` for a queue in use, and `NoSuchQueue` for one that is gone.
    """

    def work(connection: Connection) -> int:
        # Before the turns, as a firing locks them.
        _remove(connection, (allotments,), queue.id)
        for magazine in Magazine:
            turns_of.lock(connection, [queue.id], magazine)
        found = select(queues.c.deactivated_at).where(queues.c.id == queue.id)
        row = connection.execute(found).first()
        if row is None:
            raise queues_of.dropped(queue)
        if row.deactivated_at is None:
            raise BadOption(f"queue {queue.name!r} is in use; deactivate it before you drop it")
        left = _messages(connection, queue)
        if keeps_sideline and left[Magazine.SIDELINE]:
            return 0
        moves = Moves()
        for messages in left.values():
            if messages:
                # The store's report: those of the queue go with it.
                moves.count(None, messages, queue.name, None)
        moves.record(connection, schedule_of.STORE, task)
        _remove(connection, _FIRST, queue.id)
        ids = connection.scalars(select(segments.c.id).where(segments.c.queue_id == queue.id))
        release(connection, ids.all())
        _remove(connection, _THEN, queue.id)
        open_jobs.fail_into(connection, queue)
        breakers.forget(connection, queue.name)
        return len(moves)

    return transact(catalog, "drop", work)


def _messages(connection: Connection, queue: QueueInfo) -> dict[Magazine, int]:
    """Return the number of messages in each magazine."""
    found = connection.execute(
        select(slices.c.magazine, func.sum(slices.c.count))
        .where(slices.c.queue_id == queue.id)
        .group_by(slices.c.magazine)
    )
    return dict.fromkeys(Magazine, 0) | {Magazine(row[0]): int(row[1]) for row in found}


def _remove(connection: Connection, tables: tuple[Table, ...], queue_id: int) -> None:
    for table in tables:
        column = table.c.id if table is queues else table.c.queue_id
        connection.execute(delete(table).where(column == queue_id))
