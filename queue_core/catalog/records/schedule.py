"""The schedule of side tasks: many processes ask, and one of them claims a due task.

The time is the catalog's. If the process that claimed a task dies, the task waits until it is due
again. A task that began in the future is due at once, since the clock was set back. A task that a
stream has claimed (`task_runs`) is not due while it works, and due at once if it is abandoned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import ColumnElement, Connection, delete, exists, func, select, update

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import leases, named_locks
from queue_core.catalog.record_tables import schedule
from queue_core.catalog.record_tables import task_runs as runs
from queue_core.catalog.records import task_runs
from queue_core.catalog.tables import queues

#: Instead of a queue's id, for the tasks of the store.
STORE = named_locks.STORE

#: (queue, task)
Job = tuple[int, str]


def claim(
    connection: Connection, queue_id: int, task: str, interval: float, first: float | None = None
) -> bool:
    """
    Claim a task of a queue; return whether it is due, and no other process has claimed it.

    *interval*: seconds between the beginnings of two runs. *first*: seconds from the first claim to
    the first run; by default, *interval*. A shorter interval applies at once.
    """
    now = dialect.now()
    step, delay = int(interval * 1e6), int((interval if first is None else first) * 1e6)
    abandoned = connection.scalar(
        update(schedule)
        .where(
            schedule.c.queue_id == queue_id,
            schedule.c.task == task,
            (schedule.c.due_at <= now)
            | ((schedule.c.begun_at + step <= now) & (schedule.c.due_at > now))
            | leases.is_ahead(schedule.c.begun_at)
            | _has_run(task_runs.abandoned()),
            ~_has_run(task_runs.held()),
        )
        .values(begun_at=now, due_at=now + step)
        .returning(_has_run(task_runs.abandoned()))
    )
    if abandoned is not None:
        # If this claim waited for another one, it has not seen that the other gave the runs up.
        return not abandoned or task_runs.give_up(connection, queue_id, task)
    fresh = dialect.insert_new(connection, schedule).values(
        queue_id=queue_id, task=task, begun_at=now, due_at=now + (delay or step)
    )
    fresh = fresh.on_conflict_do_nothing().returning(schedule.c.queue_id)
    return connection.scalar(fresh) is not None and delay == 0


def _has_run(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition that a stream has claimed a task in a run that meets a condition."""
    of_job = (runs.c.queue_id == schedule.c.queue_id, runs.c.task == schedule.c.task)
    return exists().where(*of_job, condition)


def due(connection: Connection, intervals: Mapping[Job, float]) -> list[Job]:
    """
    Return the jobs that look due or were never claimed; *intervals* as in `claim`.

    It changes nothing and can be called often; only `claim` decides whether to run one.
    """
    ids = sorted({queue_id for queue_id, _ in intervals})
    of_queues = dialect.one_of(schedule.c.queue_id, ids)
    query = select(
        schedule,
        dialect.now().label("now"),
        _has_run(task_runs.held()).label("held"),
        (leases.is_ahead(schedule.c.begun_at) | _has_run(task_runs.abandoned())).label("free"),
    ).where(of_queues)
    resting = {
        (row.queue_id, row.task)
        for row in connection.execute(query)
        if (interval := intervals.get((row.queue_id, row.task))) is not None
        and (
            row.held
            or (not row.free and min(row.due_at, row.begun_at + int(interval * 1e6)) > row.now)
        )
    }
    return [job for job in intervals if job not in resting]


def last_begun(connection: Connection) -> dict[str, int]:
    """Return when each task last began, for any queue."""
    newest = func.max(schedule.c.begun_at)
    query = select(schedule.c.task, newest).group_by(schedule.c.task)
    return dict(connection.execute(query).all())


def shovels_begun(connection: Connection, only: Collection[int] | None) -> dict[int, int]:
    """Return when the task `shovel` last began, by the ids of some queues, or of all."""
    here = (schedule.c.task == "shovel", *dialect.among(schedule.c.queue_id, only))
    query = select(schedule.c.queue_id, schedule.c.begun_at).where(*here)
    return dict(connection.execute(query).all())


def ask_for(catalog: Catalog, job: Job, interval: float) -> None:
    """
    Make a job of another process due now if it last began *interval* seconds ago or earlier.

    It writes only when that changes something. A job that was never claimed is left alone.
    """
    queue_id, task = job
    now = dialect.now()
    late = (
        (schedule.c.queue_id == queue_id)
        & (schedule.c.task == task)
        & (schedule.c.begun_at + int(interval * 1e6) <= now)
        & (schedule.c.due_at > now)
    )
    with catalog.read() as connection:
        if connection.execute(select(schedule.c.task).where(late)).first() is None:
            return
    catalog.write(lambda c: c.execute(update(schedule).where(late).values(due_at=now)))


def hasten(connection: Connection, queue_id: int, task: str, delay: float) -> None:
    """Make a task due in *delay* seconds, as after a failure."""
    connection.execute(
        update(schedule)
        .where(schedule.c.queue_id == queue_id, schedule.c.task == task)
        .values(due_at=dialect.after(delay))
    )


def forget(connection: Connection) -> None:
    """Remove the rows of queues that are gone."""
    there = select(queues.c.id)
    connection.execute(
        delete(schedule).where(schedule.c.queue_id != STORE, schedule.c.queue_id.not_in(there))
    )
