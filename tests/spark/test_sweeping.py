"""Sweeps beside running queries: a living query loses no messages, and a dead one does."""

from threading import Event

import pytest
from sqlalchemy import update

from queue_core.catalog.holders import named_locks
from queue_core.catalog.records.schedule import schedule
from tests.dump import backdate
from tests.factories import numbers_of, orders
from tests.spark.rig import PATIENCE, counts, finish, wait_until

pytestmark = pytest.mark.nightly


def sideline(queue):
    return sorted(numbers_of(queue.browse(magazine="sideline")))


def stuck(queue, count, first):
    """Orders that somebody has fired from Python long ago, and never finished."""
    queue.load(orders(count, first))
    queue.fire("all", selector=f"number >= {first}")


def consumer_of(rig, name):
    rows = rig.store.view("consumers").to_pylist()
    return next((row for row in rows if row["consumer"] == name), None)


def test_a_slow_consumer_that_lives_loses_nothing_to_the_sweeper(rig):
    """Its batch takes longer than the age at which others are swept, and so it is seen to be."""
    queue = rig.orders(20, shards=2, key="number", sweep_after=0.05)
    working, go_on, done = Event(), Event(), []

    def slow(batch, _):
        rows = batch.collect()
        working.set()
        assert go_on.wait(PATIENCE)
        done.extend(row.number for row in rows)

    stream = rig.source(consumer="slow", heartbeatInterval="50ms", tasks="none")
    consuming = rig.each(stream, slow)
    wait_until(working.is_set, consuming)
    swept = []
    sweeper = rig.each(
        rig.source(None, task="sweep", interval="100ms"),
        lambda batch, _: swept.extend(batch.collect()),
        checkpoint="sweeper",
        trigger={},
    )
    # What others hold at the same time, and fired later, is swept, and more than once.
    for first in (100, 200):
        stuck(queue, 5, first)
        wait_until(lambda first=first: first + 4 in sideline(queue), sweeper)
    fired_at = queue.browse().column("_fired_at").to_pylist()
    wait_until(lambda: consumer_of(rig, "slow")["heartbeat_at"] > max(fired_at), consuming)
    go_on.set()
    finish(consuming)

    assert sorted(done) == list(range(20))
    assert counts(queue, "deleted", "swept", "in_flight") == [20, 10, 0]
    assert sideline(queue) == [*range(100, 105), *range(200, 205)]
    wait_until(lambda: sum(row.moved for row in swept) == 10, sweeper)


def test_a_consuming_query_sweeps_what_another_consumer_has_left(rig):
    queue = rig.orders(1)
    stuck(queue, 3, 100)
    backdate(rig.store, 7200)
    seen = []
    query = rig.each(rig.source(), lambda batch, _: seen.extend(batch.collect()), trigger={})
    # One row for all queues of the store.
    job = (schedule.c.queue_id == named_locks.STORE, schedule.c.task == "sweep")

    def asked_for():
        with rig.store.catalog.read() as connection:
            return connection.execute(schedule.select().where(*job)).first()

    # It is the leader then, and sweeps for the first time in ten minutes: let them be over.
    wait_until(lambda: asked_for() is not None, query)
    rig.store.catalog.write(lambda c: c.execute(update(schedule).where(*job).values(due_at=0)))

    wait_until(lambda: sideline(queue) == [100, 101, 102], query)
    wait_until(lambda: [row.number for row in seen] == [0], query)
