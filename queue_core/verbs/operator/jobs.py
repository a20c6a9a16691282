"""Jobs: start a redrive that any process continues, and take its steps when they are due.

Crash: the job's row keeps what was moved, in the transactions that moved it. Another process
continues the job some seconds after its next step was due.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import acts, jobs
from queue_core.catalog.records.jobs import Job
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.errors import (
    CatalogForbidden,
    IgnisError,
    PublicationRefused,
    Unavailable,
)
from queue_core.segments.storage import Storage
from queue_core.values.model import Magazine
from queue_core.values.names import host
from queue_core.verbs.operator.redriving import Redriving, Steps, count
from queue_core.verbs.quarantine import past_damage

#: Seconds after which a step that found no room is tried again.
_AGAIN_SECONDS = 1.0
#: Seconds after which another process takes a step that is overdue.
LATE_SECONDS = 10.0

_log = logging.getLogger(__name__)


def start(
    catalog: Catalog,
    storage: Storage,
    redriving: Redriving,
    who: str | None,
    horizon: Horizon | None = None,
) -> str:
    """
    Start a job; return its id. Raises `BadSelector` and `DamagedSegment`.

    *horizon*: what has come into the sideline since then stays there; by default, since now.
    """
    who = who or f"{acts.doer()}@{host()}"
    total = count(catalog, storage, redriving)
    queue, target = redriving.queue, redriving.target

    def work(connection: Connection) -> str:
        since = horizon or Horizon.of(connection, [queue.id], Magazine.SIDELINE)
        job = jobs.add(
            connection,
            queue.id,
            None if target is None else target.id,
            redriving.wish,
            pointers=dict(since.pointers),
            total=total,
            who=who[:200],
        )
        acts.about(job=job, total=total)
        return job

    return catalog.write(acts.noting(work))


class Jobs:
    """The jobs that this process has begun, with the messages that it has found for each."""

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage
        self._begun: dict[str, tuple[Job, Steps]] = {}
        #: Jobs for which the role of this process lacks a right.
        self._forbidden: set[str] = set()

    def keep(self, unfinished: Collection[str | None]) -> None:
        """Forget all jobs that are not *unfinished*: other processes may have cancelled some."""
        for job_id in self._begun.copy():
            if job_id not in unfinished:
                self._begun.pop(job_id, None)
        self._forbidden.intersection_update(unfinished)

    def left(self, job_id: str, due_in: float) -> float:
        """Return after how many seconds this process is to take a step that is due in *due_in*."""
        if job_id in self._forbidden:
            return inf
        return due_in if job_id in self._begun else due_in + LATE_SECONDS

    def step(self, job_id: str) -> int:
        """
        Take the next step of a job, unless another process does; return how many were moved.

        Most errors end the job, which then shows them. Raises `Unavailable` and
        `PublicationRefused`, after which the step can be taken again.
        """
        try:
            return past_damage(partial(self._step, job_id))
        except (Unavailable, PublicationRefused):
            raise
        except jobs.NotMine:
            self._begun.pop(job_id, None)
        except CatalogForbidden as error:
            # A consumer's role may not load into another queue; an operator's process may.
            self._forbidden.add(job_id)
            _log.warning("job %s is left to other processes: %s", job_id, error)
        except IgnisError as error:
            self._end(job_id, jobs.FAILED, str(error))
        return 0

    def _step(self, job_id: str) -> int:
        job, steps = self._begun.get(job_id) or self._begin(job_id)
        self._begun[job_id] = (job, steps)
        if job.left == 0:
            self._end(job_id, jobs.DONE)
            return 0
        moved = steps.run(
            job.left,
            guard=partial(jobs.lock, job=job),
            note=lambda connection, moved: jobs.count(connection, job, moved),
        )
        self._begun[job_id] = (replace(job, moved=job.moved + (moved or 0)), steps)
        if moved is None:
            why = f"queue {steps.target.name!r} has no room for its messages"
            self._catalog.write(partial(jobs.lock, job=job, rest=_AGAIN_SECONDS, error=why))
        elif not moved:
            self._end(job_id, jobs.DONE)
        return moved or 0

    def _begin(self, job_id: str) -> tuple[Job, Steps]:
        with self._catalog.read() as connection:
            job = jobs.find(connection, job_id)
        self._catalog.write(partial(jobs.begin, job=job))
        with self._catalog.read() as connection:
            queue = queues.by_id(connection, job.queue_id)
            target = None if job.target_id is None else queues.by_id(connection, job.target_id)
        redriving = Redriving(queue, target, job.wish)
        redriving.check()
        fields = {"job": job_id, "queue": queue.name, "moved": job.moved}
        text = "job %s of queue %r begins here; it has moved %d"
        _log.info(text, job_id, queue.name, job.moved, extra=fields)
        horizon = Horizon(pointers=job.pointers, at=job.begun_at)
        return job, Steps(self._catalog, self._storage, redriving, horizon)

    def _end(self, job_id: str, state: str, error: str | None = None) -> None:
        self._begun.pop(job_id, None)
        with suppress(jobs.NotMine):
            self._catalog.write(partial(jobs.end, job_id=job_id, state=state, error=error))
            level = logging.INFO if error is None else logging.WARNING
            text = f"job {job_id} is {state}" + (f": {error}" if error else "")
            _log.log(level, text, extra={"job": job_id, "state": state, "error": error})
