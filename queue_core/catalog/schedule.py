"""When side tasks are due: of many processes that look, one is told to run a task.

The time is the catalog's. Who is told and dies leaves the task until it is due again.
"""

from __future__ import annotations

from sqlalchemy import Connection, update

from queue_core.catalog import dialect
from queue_core.catalog.tables import schedule


def claim(
    connection: Connection, queue_id: int, task: str, interval: float, first: float | None = None
) -> bool:
    """
    Whether to run a task of a queue now: it is due, and nobody else was told so.

    *interval* is in seconds, from beginning to beginning, and *first* from the moment at which the
    task was first asked for. A shorter interval than before counts at once.
    """
    now = dialect.now()
    step, delay = int(interval * 1e6), int((interval if first is None else first) * 1e6)
    fresh = dialect.insert_new(connection, schedule).values(
        queue_id=queue_id, task=task, begun_at=now, due_at=now + delay
    )
    if connection.scalar(fresh.on_conflict_do_nothing().returning(schedule.c.queue_id)) is not None:
        return delay == 0
    claimed = connection.execute(
        update(schedule)
        .where(
            schedule.c.queue_id == queue_id,
            schedule.c.task == task,
            (schedule.c.due_at <= now)
            | ((schedule.c.begun_at + step <= now) & (schedule.c.due_at > now)),
        )
        .values(begun_at=now, due_at=now + step)
        .returning(schedule.c.queue_id)
    )
    return claimed.first() is not None


def hasten(connection: Connection, queue_id: int, task: str, delay: float) -> None:
    """The task is due again in *delay* seconds, as after a failure."""
    connection.execute(
        update(schedule)
        .where(schedule.c.queue_id == queue_id, schedule.c.task == task)
        .values(due_at=dialect.now() + int(delay * 1e6))
    )
