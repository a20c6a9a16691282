"""When side tasks are due: of many processes that look, one is told to run a task.

The time is the catalog's. Who is told and dies leaves the task until it is due again.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, delete, select, update

from queue_core.catalog import dialect
from queue_core.catalog.tables import queues, schedule

#: In place of a queue, of tasks that are the store's.
STORE = 0

#: (queue, task)
Job = tuple[int, str]


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
        queue_id=queue_id, task=task, begun_at=now, due_at=now + (delay or step)
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


def due(connection: Connection, intervals: Mapping[Job, float]) -> list[Job]:
    """
    Which of some jobs look due, or were never asked for; *intervals* as in `claim`.

    For looking often: it changes nothing, and only `claim` tells whether to run one.
    """
    ids = sorted({queue_id for queue_id, _ in intervals})
    query = select(schedule, dialect.now().label("now")).where(
        dialect.one_of(connection, schedule.c.queue_id, ids)
    )
    resting = {
        (row.queue_id, row.task)
        for row in connection.execute(query)
        if (interval := intervals.get((row.queue_id, row.task))) is not None
        and min(row.due_at, row.begun_at + int(interval * 1e6)) > row.now
    }
    return [job for job in intervals if job not in resting]


def hasten(connection: Connection, queue_id: int, task: str, delay: float) -> None:
    """The task is due again in *delay* seconds, as after a failure."""
    connection.execute(
        update(schedule)
        .where(schedule.c.queue_id == queue_id, schedule.c.task == task)
        .values(due_at=dialect.now() + int(delay * 1e6))
    )


def forget(connection: Connection) -> None:
    """Remove what is left of queues that are gone."""
    there = select(queues.c.id)
    connection.execute(
        delete(schedule).where(schedule.c.queue_id != STORE, schedule.c.queue_id.not_in(there))
    )
