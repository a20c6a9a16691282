"""Drop: remove a deactivated queue and free its name.

Changes: all rows of the queue and of its snapshots are deleted and its files become garbage, in one
transaction. The vacuum removes the keys of its de-duplication. A breaker with its name closes, and
open jobs that move messages into it fail. A report of the store counts the messages. Guard: the
queue is deactivated, which cannot be undone. Of two that drop it at once, the second finds it gone.
Crash before the commit: nothing was removed.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog import dialect, queue_changes, queues, table_rows
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import acts, breakers, jobs, schedule, token_buckets
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import amounts, logs, segments, shard_locks
from queue_core.catalog.slices.conditions import in_queue
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption
from queue_core.handling.breaker import name_for
from queue_core.values.model import Magazine, QueueInfo


def drop(
    catalog: Catalog, queue: QueueInfo, task: str = "by_hand", *, keeps_sideline: bool = False
) -> int:
    """
    Remove a deactivated queue with its messages, and report them as moved by *task*.

    With *keeps_sideline*, a queue with messages in its sideline, or with subscriptions, stays.
    Returns how many messages were removed. Raises `BadOption` for a queue in use or one with
    subscriptions, `NoSuchQueue` for one that is gone, and `StillLocked` in a task.
    """

    def work(connection: Connection) -> int:
        # Before the shard locks, as a firing takes them.
        token_buckets.forget(connection, queue.id)
        own = (queue.id, *queue_changes.snapshots(connection, queue.id))
        for magazine in Magazine:
            shard_locks.lock(connection, own, magazine)
        if queues.present(connection, queue).deactivated_at is None:
            raise BadOption(f"queue {queue.name!r} is in use; deactivate it before you drop it")
        if keeps_sideline and queue_changes.subscriptions(connection, queue.id):
            return 0
        queue_changes.check_unread(connection, queue)
        aside = in_queue(queue.id, Magazine.SIDELINE)
        if keeps_sideline and amounts.messages(connection, *aside):
            return 0
        moves = Moves()
        if left := amounts.messages(connection, *in_queue(queue.id)):
            # In a report of the store: the reports of the queue are removed with it.
            moves.count(None, left, queue.name, None)
        moves.record(connection, schedule.STORE, task)
        for queue_id in (*queue_changes.snapshots(connection, queue.id), queue.id):
            remove(connection, queue_id)
        jobs.fail_into(connection, queue)
        # The breaker of a handler whose breaker has no name of its own.
        breakers.forget(connection, name_for([queue.name]))
        acts.note(connection, len(moves) or None)
        return len(moves)

    seconds = None if task == "by_hand" else dialect.TASK_LOCK_SECONDS
    return transact(catalog, "drop", work, seconds=seconds)


def remove(connection: Connection, queue_id: int) -> None:
    """Remove all rows of a queue, and what nothing else names."""
    named = {*segments.of_slices(connection, queue_id)}
    table_rows.remove(connection, table_rows.MESSAGES, queue_id)
    while segments.of_slices(connection, queue_id):
        # A settlement that held some of them has left new slices, of the same segments.
        table_rows.remove(connection, table_rows.MESSAGES, queue_id)
    logs.forget(connection, queue_id)
    segments.release(connection, named.union(segments.of_queue(connection, queue_id)))
    table_rows.remove(connection, table_rows.REST, queue_id)
