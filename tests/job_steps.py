"""Take the steps of jobs, as processes with side tasks do."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import update

from queue_core import Store
from queue_core.catalog.record_tables import jobs
from queue_core.upkeep.tasks.shovel import Retries


def the_job(store: Store) -> dict[str, Any]:
    """Return the row of the only job."""
    (row,) = store.view("jobs").to_pylist()
    return dict(row)


def run_job(store: Store, job: str, steps: Retries | None = None) -> None:
    """Take the steps of a job in this thread until it has ended."""
    steps = steps or Retries(store.catalog, store.storage)
    while job in _open(store):
        _, left = steps.run(job=job)
        time.sleep(min(left, 0.02))


def make_late(store: Store) -> None:
    """Let other processes continue the jobs that one has begun, as if their steps were late."""
    begun = update(jobs).where(jobs.c.due_at.is_not(None))
    store.catalog.write(lambda connection: connection.execute(begun.values(due_at=0)))


def _open(store: Store) -> set[str]:
    return {row["job"] for row in store.view("jobs").to_pylist() if row["ended_at"] is None}
