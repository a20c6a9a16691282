"""Side tasks that two processes claim."""

from __future__ import annotations

from sqlalchemy import update

from queue_core.catalog.record_tables import task_runs
from queue_core.catalog.records import schedule
from queue_core.catalog.records import task_runs as runs
from queue_core.support import faults
from tests.factories import make_queue


def test_of_two_who_claim_an_abandoned_task_one_does_it(store, race):
    job = (make_queue(store).info.id, "shovel")
    run = {"queue_id": job[0], "task": "shovel", "target_id": job[0], "share": 0, "shares": 1}

    def claims(store):
        def work(connection):
            is_due = schedule.claim(connection, *job, 3600.0, first=0.0)
            faults.point("task.before_claim")
            return is_due

        return store.catalog.write(work)

    assert claims(store)
    store.catalog.write(lambda c: runs.claim(c, "stream", 1, [run]))
    assert not claims(store)
    store.catalog.write(lambda c: c.execute(update(task_runs).values(held_until=0)))

    assert race(claims, "task.before_claim", claims) == (True, False)
