"""Jobs: long shovels that any process continues, one row each.

A process claims a job by its own name, and renews its heartbeat with each step. If the heartbeat is
old, another process claims the job. Each step first locks the row and checks that the job is still
its own, so a job that was cancelled or taken over moves nothing more.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, insert, or_, select, update

from queue_core.catalog import dialect, seals
from queue_core.catalog.damage import decoding
from queue_core.catalog.holders import signs_of_life
from queue_core.catalog.queues import dropped
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import jobs, queues
from queue_core.errors import BadOption
from queue_core.values.model import QueueInfo

WAITING, RUNNING, DONE, CANCELLED, FAILED = "waiting", "running", "done", "cancelled", "failed"
#: The states in which a job will still move messages.
OPEN = (WAITING, RUNNING)

#: The target of a job, as the view ``jobs`` shows it, if the queue is no longer there.
DROPPED = "(dropped)"

#: Seconds without a heartbeat after which another process continues a job.
DEAD_AFTER_SECONDS = 60.0
#: Characters of an error that are kept.
_ERROR_LENGTH = 2000


class NotMine(Exception):
    """The job was cancelled, or another process continues it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as the catalog describes it."""

    id: str
    queue_id: int
    #: The queue to which it moves messages; None: back to main.
    target_id: int | None
    selector: str | None
    #: Messages per second.
    rate: float | None
    most: int | None
    force: bool
    state: str
    moved: int
    #: How many messages there were for it when it began.
    total: int
    #: The load pointers of the sideline when it began, and that time.
    pointers: dict[ShardKey, int]
    begun_at: int
    error: str | None


def add(
    connection: Connection,
    queue_id: int,
    *,
    target_id: int | None,
    selector: str | None,
    rate: float | None,
    most: int | None,
    force: bool,
    pointers: dict[ShardKey, int],
    total: int,
    who: str,
) -> str:
    """Add a job that begins now; return its id."""
    now = dialect.read_clock(connection)
    row = {
        "id": uuid.uuid4().hex[:8],
        "queue_id": queue_id,
        "target_id": target_id,
        "selector": selector,
        "rate": None if rate is None else repr(float(rate)),
        "most": most,
        "force": force,
        "who": who,
        "pointers": json.dumps({"/".join(map(str, key)): at for key, at in pointers.items()}),
        "begun_at": now,
        "state": WAITING,
        "moved": 0,
        "total": total,
    }
    connection.execute(insert(jobs).values(seals.sealed(jobs, row)))
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
        return Job(
            id=row.id,
            queue_id=row.queue_id,
            target_id=row.target_id,
            selector=row.selector,
            rate=None if row.rate is None else float(row.rate),
            most=row.most,
            force=bool(row.force),
            state=row.state,
            moved=row.moved,
            total=row.total,
            pointers=pointers,  # type: ignore[arg-type]
            begun_at=row.begun_at,
            error=row.error,
        )


def failed(connection: Connection, most: int) -> Sequence[Any]:
    """Return the `id`, the `name` of the queue and the `error` of the jobs that failed last."""
    query = (
        select(jobs.c.id, queues.c.name, jobs.c.error)
        .join(queues, queues.c.id == jobs.c.queue_id)
        .where(jobs.c.state == FAILED)
        .order_by(jobs.c.ended_at.desc())
    )
    return connection.execute(query.limit(most)).all()


def claimable(connection: Connection, queue_ids: Collection[int]) -> list[str]:
    """Return the jobs of some queues that wait, or whose process is dead."""
    here = dialect.of(connection).one_of(jobs.c.queue_id, queue_ids)
    return list(
        connection.scalars(select(jobs.c.id).where(here, _is_free()).order_by(jobs.c.begun_at))
    )


def is_free(connection: Connection, job_id: str) -> bool:
    """Return whether a job waits for a process."""
    query = select(jobs.c.id).where(jobs.c.id == job_id, _is_free())
    return connection.execute(query).first() is not None


def claim(connection: Connection, job_id: str, runner: str) -> bool:
    """Claim a job for the process *runner*; return whether it was free."""
    values = {"state": RUNNING, "runner": runner, "heartbeat_at": dialect.now()}
    claimed = update(jobs).where(jobs.c.id == job_id, _is_free()).values(**values)
    return connection.execute(claimed.returning(jobs.c.id)).first() is not None


def check(connection: Connection, job_id: str, runner: str) -> None:
    """Lock a job until the transaction ends, and renew its heartbeat; raises `NotMine`."""
    mine = update(jobs).where(jobs.c.id == job_id, jobs.c.runner == runner, jobs.c.state == RUNNING)
    renewed = mine.values(heartbeat_at=dialect.now()).returning(jobs.c.id)
    if connection.execute(renewed).first() is None:
        raise NotMine


def count(connection: Connection, job_id: str, moved: int) -> None:
    """Count moved messages of a job that this transaction has locked."""
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(moved=jobs.c.moved + moved))


def end(
    connection: Connection, job_id: str, runner: str, state: str, error: str | None = None
) -> None:
    """End a job of this process; raises `NotMine`."""
    check(connection, job_id, runner)
    text = None if error is None else error[:_ERROR_LENGTH]
    values = {"state": state, "error": text, "ended_at": dialect.now()}
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def release(connection: Connection, job_id: str, runner: str) -> None:
    """Let another process continue a job at once."""
    mine = update(jobs).where(jobs.c.id == job_id, jobs.c.runner == runner)
    connection.execute(mine.where(jobs.c.state == RUNNING).values(state=WAITING, runner=None))


def cancel(connection: Connection, job_id: str) -> bool:
    """Cancel a job; return whether it was open. Raises `BadOption` if there is no such job."""
    find(connection, job_id)
    still_open = jobs.c.state.in_(OPEN)
    cancelled = update(jobs).where(jobs.c.id == job_id, still_open)
    cancelled = cancelled.values(state=CANCELLED, ended_at=dialect.now())
    return connection.execute(cancelled.returning(jobs.c.id)).first() is not None


def fail_into(connection: Connection, target: QueueInfo) -> None:
    """Fail the open jobs that move messages into a queue, because it is dropped."""
    of_target = update(jobs).where(jobs.c.target_id == target.id, jobs.c.state.in_(OPEN))
    values = {"state": FAILED, "error": str(dropped(target))[:_ERROR_LENGTH]}
    connection.execute(of_target.values(**values, ended_at=dialect.now()))


def forget(connection: Connection, before: int) -> None:
    """Remove jobs that ended before a time, in microseconds."""
    connection.execute(jobs.delete().where(jobs.c.ended_at < before))


def _is_free() -> ColumnElement[bool]:
    silent = jobs.c.heartbeat_at < dialect.now() - int(DEAD_AFTER_SECONDS * 1e6)
    ahead = signs_of_life.is_ahead(jobs.c.heartbeat_at)
    return or_(jobs.c.state == WAITING, and_(jobs.c.state == RUNNING, or_(silent, ahead)))


def shown(connection: Connection, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return the rows of the view ``jobs``, of queues with these names by their ids."""
    rows = []
    targets = {row.id: row.name for row in connection.execute(select(queues.c.id, queues.c.name))}
    for row in connection.execute(select(jobs).order_by(jobs.c.begun_at, jobs.c.id)).mappings():
        if row["queue_id"] in names:
            with decoding(jobs, f"id {row['id']}"):
                rate = None if row["rate"] is None else float(row["rate"])
            target = row["target_id"]
            rows.append(
                dict(row)
                | {
                    "job": row["id"],
                    "queue": names[row["queue_id"]],
                    "target": None if target is None else targets.get(target, DROPPED),
                    "rate": rate,
                    "limit": row["most"],
                }
            )
    return rows
