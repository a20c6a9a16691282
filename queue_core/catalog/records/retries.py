"""Due times: when messages of the sideline are to return to main.

A message of the sideline has a time (`slices.due_at`), is dead, or neither: then it waits for the
next shovel. The message itself has this state, and so keeps it when the setting `retry` changes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection, func, null, select, update

from queue_core.catalog import dialect, seals
from queue_core.catalog.record_tables import jobs
from queue_core.catalog.slices.conditions import TIMELESS, WAITING, in_queue
from queue_core.catalog.tables import queues, slices
from queue_core.values.due import NEVER
from queue_core.values.model import Magazine


class Next(NamedTuple):
    """What is due in a queue: messages that wait for their time, or the next step of a job."""

    queue: str
    #: Microseconds until then; negative if it is overdue.
    left: int
    #: The job; None: messages.
    job: str | None = None


def next_due(connection: Connection, names: Collection[str] | None = None) -> list[Next]:
    """
    Return the queues, of these names or all, with messages that wait for a time, or with jobs.

    One look at an index for each queue, however many messages wait. Of deactivated queues, only the
    jobs go on.
    """
    first = (
        select(slices.c.due_at)
        # Only terms of the index and a filter, so that no database chooses another index.
        .where(slices.c.queue_id == queues.c.id, slices.c.due_at < NEVER, *WAITING)
        .order_by(slices.c.due_at)
        .limit(1)
        .scalar_subquery()
    )
    now = dialect.now().label("now")
    own = select(queues.c.name, first.label("due_at"), null().label("job"), now)
    own = own.where(queues.c.deactivated_at.is_(None), queues.c.snapshot_of == 0)
    # A job that no process has begun is due at once, for any process.
    due_at = func.coalesce(jobs.c.due_at, 0)
    steps = select(queues.c.name, due_at, jobs.c.id, now).join(jobs, jobs.c.queue_id == queues.c.id)
    steps = steps.where(jobs.c.ended_at.is_(None))
    if names is not None:
        these = dialect.one_of(queues.c.name, sorted(names))
        own, steps = own.where(these), steps.where(these)
    return [
        Next(row.name, int(row.due_at - row.now), row.job)
        for row in connection.execute(own.union_all(steps))
        if row.due_at is not None
    ]


def find_due(
    connection: Connection, queue_id: int, limit: int, but: Collection[int]
) -> list[tuple[int, int]]:
    """Return ids and shards of slices that are due, except in *but*; the longest due first."""
    now = dialect.read_clock(connection)
    others = [slices.c.shard.not_in(but)] if but else []
    query = (
        select(slices.c.id, slices.c.shard)
        .where(slices.c.queue_id == queue_id, slices.c.due_at <= now, *WAITING, *others)
        .order_by(slices.c.due_at)
        .limit(limit)
    )
    return [(row.id, row.shard) for row in connection.execute(query)]


def overdue(connection: Connection, now: int, only: Collection[int] | None) -> dict[int, int]:
    """Return since when a waiting message of each of some queues, or of all, is due, if one is."""
    due = (slices.c.due_at <= now, slices.c.due_at.is_not(None), *WAITING)
    query = select(slices.c.queue_id, func.min(slices.c.due_at)).where(
        *due, *dialect.among(slices.c.queue_id, only)
    )
    return dict(connection.execute(query.group_by(slices.c.queue_id)).all())


def begin(connection: Connection, queue_id: int) -> None:
    """Make messages without a time due now, because their queue gets a policy."""
    connection.execute(
        update(slices)
        .where(*in_queue(queue_id, Magazine.SIDELINE), *TIMELESS)
        .values(seals.changing(slices, due_at=dialect.read_clock(connection)))
    )
