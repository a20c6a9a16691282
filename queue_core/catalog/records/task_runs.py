"""The runs of side tasks that streams have claimed, and their executors do.

A round of a stream is one micro-batch: all runs that one transaction has claimed. A run is one
share of the work of a task, for one task of Spark. Its row stays for a week, so that a batch that
is planned again has the same runs, and a run that is repeated knows that it was done.

While a task of Spark works, it holds all runs of its round. A run that nobody holds and that is not
done is abandoned: whoever claims the job next takes it over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, update

from queue_core.catalog import dialect
from queue_core.catalog.holders import leases
from queue_core.catalog.record_tables import task_runs

#: Seconds for which a claim holds, and until which a working task of Spark must have renewed it.
HOLD_SECONDS = 60.0
RENEW_SECONDS = 15.0

_OPEN = task_runs.c.done_at.is_(None)
_ERROR_LENGTH = 2000


class TaskRun(NamedTuple):
    """One share of a task, which a stream has claimed."""

    id: int
    stream: str
    round: int
    queue_id: int
    task: str
    target_id: int
    share: int
    shares: int


_COLUMNS = tuple(task_runs.c[name] for name in TaskRun._fields)


def held() -> ColumnElement[bool]:
    """Return the condition that a run is not done, and somebody may be working on it."""
    return (
        _OPEN
        & (task_runs.c.held_until > dialect.now())
        # Otherwise, the clock was set back.
        & ~leases.is_ahead(task_runs.c.held_until, HOLD_SECONDS)
    )


def abandoned() -> ColumnElement[bool]:
    """Return the condition that a run is not done, and nobody works on it."""
    return _OPEN & ~held()


def is_held(connection: Connection, queue_id: int, task: str) -> bool:
    """Return whether somebody may be working on a job."""
    job = (task_runs.c.queue_id == queue_id, task_runs.c.task == task)
    return connection.scalar(select(task_runs.c.id).where(*job, held()).limit(1)) is not None


def claim(connection: Connection, stream: str, number: int, runs: Sequence[dict[str, Any]]) -> None:
    """Add the runs of a round: of each its job, its task, its target and its share."""
    # These runs take over what abandoned ones of the same jobs have left.
    for queue_id, task in sorted({(run["queue_id"], run["task"]) for run in runs}):
        give_up(connection, queue_id, task)
    until = dialect.read_clock(connection) + int(HOLD_SECONDS * 1e6)
    row = {"stream": stream, "round": number, "held_until": until}
    connection.execute(insert(task_runs), [row | run for run in runs])


def give_up(connection: Connection, queue_id: int, task: str) -> bool:
    """Count the abandoned runs of a job as done; return whether there are any."""
    job = (task_runs.c.queue_id == queue_id, task_runs.c.task == task, abandoned())
    gone = connection.execute(update(task_runs).where(*job).values(done_at=dialect.now()))
    return gone.rowcount > 0


def of_rounds(connection: Connection, stream: str, after: int, upto: int) -> list[TaskRun]:
    """Return the runs of a stream's rounds after *after* up to *upto*."""
    query = select(*_COLUMNS).where(
        task_runs.c.stream == stream, task_runs.c.round > after, task_runs.c.round <= upto
    )
    return [TaskRun(*row) for row in connection.execute(query.order_by(task_runs.c.id))]


def last_round(connection: Connection, stream: str) -> int:
    """Return the number of the newest round of a stream, or 0."""
    newest = select(func.max(task_runs.c.round)).where(task_runs.c.stream == stream)
    return int(connection.scalar(newest) or 0)


def ids_of(stream: str) -> Select[tuple[int]]:
    """Return the statement that finds the ids of all runs of a stream."""
    return select(task_runs.c.id).where(task_runs.c.stream == stream)


def errors(connection: Connection, stream: str, number: int) -> list[tuple[TaskRun, str]]:
    """Return the runs of a round that failed, and their errors."""
    query = select(*_COLUMNS, task_runs.c.error).where(
        task_runs.c.stream == stream,
        task_runs.c.round == number,
        task_runs.c.error.is_not(None),
    )
    found = connection.execute(query.order_by(task_runs.c.id))
    return [(TaskRun(*row[:-1]), row.error) for row in found]


def hold(connection: Connection, runs: Collection[int]) -> bool:
    """Hold runs that are not done for another while; return whether there are any."""
    rows = connection.execute(
        update(task_runs)
        .where(dialect.one_of(task_runs.c.id, sorted(runs)), _OPEN)
        .values(held_until=dialect.after(HOLD_SECONDS))
        .returning(task_runs.c.id)
    )
    return rows.first() is not None


def finish(connection: Connection, run_id: int, error: str | None) -> None:
    """Note that a run is done, and what went wrong."""
    values = {"done_at": dialect.now(), "error": error and error[:_ERROR_LENGTH]}
    connection.execute(update(task_runs).where(task_runs.c.id == run_id).values(**values))


def is_open(connection: Connection, run_id: int) -> bool:
    """Return whether a run is not done and nobody has taken it over; lock it, if so."""
    query = select(task_runs.c.id).where(task_runs.c.id == run_id, _OPEN).with_for_update()
    return connection.scalar(query) is not None


def forget(connection: Connection, before: int) -> None:
    """Remove runs that were done before a time, in microseconds, or abandoned before it."""
    over = (task_runs.c.done_at < before) | (_OPEN & (task_runs.c.held_until < before))
    connection.execute(delete(task_runs).where(over))
