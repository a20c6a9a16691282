"""Jobs: start a redrive that any process continues, and run it.

Crash: the job's row keeps what was moved, in the transactions that moved it. Another process
continues the job when its heartbeat is a minute old.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import jobs
from queue_core.catalog.records.jobs import Job
from queue_core.catalog.slices import turns
from queue_core.errors import (
    CatalogForbidden,
    DamagedSegment,
    IgnisError,
    PublicationRefused,
    Unavailable,
)
from queue_core.segments.storage import Storage
from queue_core.selection.request import Horizon
from queue_core.values.model import Magazine
from queue_core.verbs.operator.redriving import Redriving, Steps, count

#: Seconds after which a step is tried again for which there was no room, or no catalog.
_AGAIN_SECONDS = 1.0
#: The most seconds between two heartbeats.
_BEAT_SECONDS = 3.0

_log = logging.getLogger(__name__)


def start(catalog: Catalog, storage: Storage, redriving: Redriving, who: str | None) -> str:
    """Start a job; return its id. Raises `BadSelector` and `DamagedSegment`."""
    who = who or _user()
    total = count(catalog, storage, redriving)
    queue, target = redriving.queue, redriving.target

    def work(connection: Connection) -> str:
        return jobs.add(
            connection,
            queue.id,
            target_id=None if target is None else target.id,
            selector=redriving.selector,
            rate=redriving.rate,
            most=redriving.limit,
            force=redriving.force,
            pointers=turns.load_pointers(connection, [queue.id], Magazine.SIDELINE),
            total=total,
            who=who[:200],
        )

    return catalog.write(work)


def _user() -> str:
    """Return the user and the machine of this process."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # A container may have no name for its user.
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


class JobRun:
    """A job that this process has claimed, until it ends, is cancelled or is taken over."""

    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        job_id: str,
        runner: str,
        ended: threading.Event | None = None,
    ) -> None:
        self._catalog = catalog
        self._storage = storage
        self._id = job_id
        self._runner = runner
        #: Set when this process must stop; another process then continues.
        self._ended = ended or threading.Event()
        #: Whether the role of this process lacks a right for it.
        self.is_forbidden = False
        self._check = partial(jobs.check, job_id=job_id, runner=runner)

    def run(self) -> None:
        """Move messages until nothing is left. Errors end the job, which then shows them."""
        try:
            self._run()
        except jobs.NotMine:
            return
        except CatalogForbidden as error:
            # A consumer's role may not load into another queue; an operator's process may.
            self.is_forbidden = True
            _log.warning("job %s is left to other processes: %s", self._id, error)
            self._release()
        except IgnisError as error:
            _log.warning("job %s failed: %s", self._id, error)
            self._end(jobs.FAILED, str(error))

    def _run(self) -> None:
        job: Job | None = None
        steps: Steps | None = None
        while not self._ended.is_set():
            try:
                if job is None or steps is None:
                    job, steps = self._begin()
                if not self._step(job, steps):
                    self._end(jobs.DONE)
                    return
            except DamagedSegment:
                # It is quarantined now.
                continue
            except (Unavailable, PublicationRefused) as error:
                _log.warning("job %s: %s; tried again", self._id, error)
                self._ended.wait(_AGAIN_SECONDS)
        self._release()

    def _step(self, job: Job, steps: Steps) -> bool:
        """Move the messages of one step, and rest; return whether there may be more."""
        left = None if job.most is None else max(job.most - self._moved(), 0)
        if left == 0:
            return False
        step = steps.run(left, self._check, self._note)
        if not step.moved and not step.is_full:
            return False
        self._rest(max(steps.rest(), _AGAIN_SECONDS if step.is_full else 0.0))
        return True

    def _release(self) -> None:
        # If this fails, another process notices that the heartbeat is old.
        with suppress(IgnisError):
            self._catalog.write(lambda c: jobs.release(c, self._id, self._runner))

    def _begin(self) -> tuple[Job, Steps]:
        with self._catalog.read() as connection:
            job = jobs.find(connection, self._id)
            queue = queues.by_id(connection, job.queue_id)
            target = None if job.target_id is None else queues.by_id(connection, job.target_id)
        redriving = Redriving(
            queue=queue,
            target=target,
            selector=job.selector,
            rate=job.rate,
            limit=job.most,
            force=job.force,
        )
        redriving.check()
        horizon = Horizon(pointers=job.pointers, at=job.begun_at)
        return job, Steps(self._catalog, self._storage, redriving, horizon)

    def _moved(self) -> int:
        with self._catalog.read() as connection:
            return jobs.find(connection, self._id).moved

    def _note(self, connection: Connection, moved: int) -> None:
        jobs.count(connection, self._id, moved)

    def _rest(self, seconds: float) -> None:
        """Wait, and show that the job is alive; raises `NotMine` if it was cancelled meanwhile."""
        while seconds > 0 and not self._ended.is_set():
            self._ended.wait(min(seconds, _BEAT_SECONDS))
            seconds -= _BEAT_SECONDS
            if seconds > 0:
                self._catalog.write(self._check)

    def _end(self, state: str, error: str | None = None) -> None:
        try:
            self._catalog.write(lambda c: jobs.end(c, self._id, self._runner, state, error))
        except jobs.NotMine:
            return
        except IgnisError as broken:
            # Another process notices that the heartbeat is old.
            _log.warning("job %s: %s", self._id, broken)


class JobThreads:
    """The jobs that this process runs, each in a thread of its own."""

    def __init__(self, catalog: Catalog, storage: Storage, runner: str) -> None:
        self._catalog = catalog
        self._storage = storage
        self._runner = runner
        self._ended = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._runs: dict[str, JobRun] = {}

    def start(self, job_id: str) -> None:
        """Run a job if it is free."""
        running = self._threads.get(job_id)
        if running is not None and (running.is_alive() or self._runs[job_id].is_forbidden):
            return
        with self._catalog.read() as connection:
            if not jobs.is_free(connection, job_id):
                return
        if not self._catalog.write(lambda c: jobs.claim(c, job_id, self._runner)):
            return
        run = JobRun(self._catalog, self._storage, job_id, self._runner, self._ended)
        thread = threading.Thread(target=run.run, name=f"ignis-job-{job_id}", daemon=True)
        self._threads[job_id], self._runs[job_id] = thread, run
        thread.start()

    def stop(self) -> None:
        """End after the present steps; other processes continue the jobs."""
        self._ended.set()
        for thread in self._threads.values():
            thread.join()
        self._ended, self._threads = threading.Event(), {}


def run_here(catalog: Catalog, storage: Storage, job_id: str, runner: str) -> bool:
    """Run a job in this thread if it is free; return whether it was."""
    if not catalog.write(lambda c: jobs.claim(c, job_id, runner)):
        return False
    JobRun(catalog, storage, job_id, runner).run()
    return True
