"""Jobs: redrives with a row each, which go on step by step, each step when it is due.

A step is one transaction. It moves messages, counts them in the row, and sets when the next one is
due, by the rate. It first locks the row, and checks that the job is open and has moved as many
messages as the process knows of. So each step happens once, whichever processes try it, and a
cancelled job moves nothing more. The process that has begun a job takes its steps when they are
due; others leave it alone until it is late.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, Update, and_, func, insert, or_, select, update

from queue_core.catalog import dialect
from queue_core.catalog.damage import decoding
from queue_core.catalog.queues import dropped
from queue_core.catalog.record_tables import jobs
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import queues
from queue_core.errors import BadOption
from queue_core.values.ids import IdSet, from_text, to_text
from queue_core.values.model import QueueInfo

WAITING, RUNNING, DONE, CANCELLED, FAILED = "waiting", "running", "done", "cancelled", "failed"
#: The states in which a job will still move messages.
OPEN = (WAITING, RUNNING)

#: The target of a job, as the view ``jobs`` shows it, if the queue is no longer there.
DROPPED = "(dropped)"

#: Seconds after which the rate of a job is measured and no longer the one that it was given.
_SETTLING_SECONDS = 30.0

#: Characters of an error that are kept.
_ERROR_LENGTH = 2000


class NotMine(Exception):
    """The job was cancelled, or another process continues it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Which messages of a sideline a person wants to move, and how fast."""

    #: Only messages that meet it; None: all.
    selector: str | None = None
    #: The most messages per second; None: no limit.
    rate: float | None = None
    #: The most messages; None: all.
    limit: int | None = None
    #: Also dead messages.
    force: bool = False
    #: Only these messages; None: all.
    ids: IdSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as the catalog describes it."""

    id: str
    queue_id: int
    #: The queue to which it moves messages; None: back to main.
    target_id: int | None
    wish: Wish
    moved: int
    #: The load pointers of the sideline when it began, and that time.
    pointers: dict[ShardKey, int]
    begun_at: int
    #: When its next step is due; None: no process has begun it.
    due_at: int | None

    @property
    def left(self) -> int | None:
        """How many messages it may still move; None: all."""
        most = self.wish.limit
        return None if most is None else max(most - self.moved, 0)


def add(
    connection: Connection,
    queue_id: int,
    target_id: int | None,
    wish: Wish,
    *,
    pointers: dict[ShardKey, int],
    total: int,
    who: str,
) -> str:
    """Add a job that any process may begin; return its id."""
    row = {
        "id": uuid.uuid4().hex[:8],
        "queue_id": queue_id,
        "target_id": target_id,
        "selector": wish.selector,
        "ids": None if wish.ids is None else to_text(wish.ids),
        "rate": None if wish.rate is None else repr(float(wish.rate)),
        "most": wish.limit,
        "force": wish.force,
        "who": who,
        "pointers": json.dumps({"/".join(map(str, key)): at for key, at in pointers.items()}),
        "begun_at": dialect.read_clock(connection),
        "state": WAITING,
        "moved": 0,
        "total": total,
    }
    connection.execute(insert(jobs).values(row))
    return str(row["id"])


def find(connection: Connection, job_id: str) -> Job:
    """Return a job; raises `BadOption` if there is none of this id."""
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
    if row is None:
        raise BadOption(f"job={job_id!r}: the store has no such job; the view jobs lists them")
    with decoding(jobs, f"id {job_id}"):
        pointers = {
            tuple(map(int, k.split("/"))): int(v) for k, v in json.loads(row.pointers).items()
        }
        wish = Wish(
            selector=row.selector,
            rate=None if row.rate is None else float(row.rate),
            limit=row.most,
            force=bool(row.force),
            ids=None if row.ids is None else from_text(row.ids),
        )
        return Job(
            id=row.id,
            queue_id=row.queue_id,
            target_id=row.target_id,
            wish=wish,
            moved=row.moved,
            pointers=pointers,  # type: ignore[arg-type]
            begun_at=row.begun_at,
            due_at=row.due_at,
        )


def failed(connection: Connection, most: int, only: Collection[int] | None) -> Sequence[Any]:
    """Return the rows of jobs that do not move, or failed last, of some queues or of all."""
    unbegun = and_(jobs.c.due_at.is_(None), jobs.c.begun_at < dialect.after(-_SETTLING_SECONDS))
    still = and_(jobs.c.state.in_(OPEN), or_(jobs.c.error.is_not(None), unbegun))
    here = dialect.among(jobs.c.queue_id, only)
    query = select(jobs).where(or_(jobs.c.state == FAILED, still), *here)
    newest = (jobs.c.ended_at.is_not(None), jobs.c.ended_at.desc())
    return connection.execute(query.order_by(*newest).limit(most)).all()


def by_state(connection: Connection) -> Sequence[Any]:
    """Return the `name` of each queue that has jobs, a `state` of them, and the number of these."""
    place = (queues.c.name, jobs.c.state)
    query = select(*place, func.count()).join(queues, queues.c.id == jobs.c.queue_id)
    return connection.execute(query.group_by(*place).order_by(*place)).all()


def begin(connection: Connection, job: Job) -> None:
    """Begin a job, or continue it for a process that is late; raises `NotMine`."""
    # Another process that has begun it meanwhile has set another time.
    same = jobs.c.due_at.is_(None) if job.due_at is None else jobs.c.due_at == job.due_at
    _change(connection, _open(job.id).where(same), state=RUNNING, due_at=dialect.now())


def lock(connection: Connection, job: Job, rest: float = 0.0, **why: str) -> None:
    """Lock a job for a step; without `count`, it is due in *rest* seconds. Raises `NotMine`."""
    as_known = _open(job.id).where(jobs.c.moved == job.moved)
    _change(connection, as_known, due_at=dialect.after(rest), **why)


def count(connection: Connection, job: Job, moved: int) -> None:
    """Count the messages of a step of a locked job; the next one is due by its rate."""
    rest = moved / job.wish.rate if job.wish.rate else 0.0
    values = {"moved": job.moved + moved, "due_at": dialect.after(rest)}
    _change(connection, _open(job.id), error=None, **values)


def end(connection: Connection, job_id: str, state: str, error: str | None = None) -> None:
    """End a job; raises `NotMine` if it has ended."""
    text = None if error is None else error[:_ERROR_LENGTH]
    _change(connection, _open(job_id), state=state, error=text, ended_at=dialect.now())


def cancel(connection: Connection, job_id: str) -> bool:
    """Cancel a job; return whether it was open. Raises `BadOption` if there is no such job."""
    find(connection, job_id)
    try:
        end(connection, job_id, CANCELLED)
    except NotMine:
        return False
    return True


def fail_into(connection: Connection, target: QueueInfo) -> None:
    """Fail the open jobs that move messages into a queue, because it is dropped."""
    of_target = update(jobs).where(jobs.c.target_id == target.id, jobs.c.state.in_(OPEN))
    values = {"state": FAILED, "error": str(dropped(target))[:_ERROR_LENGTH]}
    connection.execute(of_target.values(**values, ended_at=dialect.now()))


def forget(connection: Connection, before: int) -> None:
    """Remove jobs that ended before a time, in microseconds."""
    connection.execute(jobs.delete().where(jobs.c.ended_at < before))


def _open(job_id: str) -> Update:
    return update(jobs).where(jobs.c.id == job_id, jobs.c.state.in_(OPEN))


def _change(connection: Connection, which: Update, **values: Any) -> None:
    if connection.execute(which.values(values).returning(jobs.c.id)).first() is None:
        raise NotMine


def shown(connection: Connection, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return the rows of the view ``jobs``, of queues with these names by their ids."""
    rows, now = [], dialect.read_clock(connection)
    targets = {row.id: row.name for row in connection.execute(select(queues.c.id, queues.c.name))}
    for row in connection.execute(select(jobs).order_by(jobs.c.begun_at, jobs.c.id)).mappings():
        if row["queue_id"] in names:
            with decoding(jobs, f"id {row['id']}"):
                rate = None if row["rate"] is None else float(row["rate"])
            target = row["target_id"]
            speed = _per_second(row, rate, now)
            # A job with an error has ended, or does not move.
            still = row["ended_at"] or row["error"] or not speed
            left = None if still or not speed else (row["total"] - row["moved"]) / speed
            rows.append(
                dict(row)
                | {
                    "job": row["id"],
                    "queue": names[row["queue_id"]],
                    "target": None if target is None else targets.get(target, DROPPED),
                    "rate": rate,
                    "limit": row["most"],
                    "by_id": row["ids"] is not None,
                    "moved_per_s": speed,
                    "seconds_left": None if left is None else max(left, 0.0),
                }
            )
    return rows


def _per_second(row: RowMapping, rate: float | None, now: int) -> float | None:
    """Return how many messages a second a job has moved so far; None: it is not known yet."""
    seconds = max((row["ended_at"] or now) - row["begun_at"], 1) / 1e6
    if row["ended_at"] is None and seconds < _SETTLING_SECONDS:
        # Another process may begin it some seconds late, which says nothing about its rate.
        return rate or (row["moved"] / seconds if row["moved"] else None)
    return float(row["moved"] / seconds)
