"""Every arrow of the life cycle of a message, through Spark, one test for each.

Published → fired → consumed → deleted; fired → sidelined → shovelled → published; fired → swept →
sidelined. What is sidelined leaves main in the same transaction, so it is never in both, nor in
none. What a handler can return or raise is in `test_consume`.
"""

import time

import pytest
from sqlalchemy import update

from pyspark_ignis import consume
from queue_core.catalog.tables import consumers
from tests.books import audit, leftover_files
from tests.dump import backdate
from tests.factories import make_queue, orders
from tests.spark.consuming import Journal
from tests.spark.rig import AVAILABLE_NOW, Rig, counts, finish, wait_until

pytestmark = pytest.mark.nightly


def where(queue):
    """The magazine, the state, and how many messages with how many failures, of each slice."""
    slices = queue.store.view("slices", queue.name)
    columns = ("magazine", "state", "messages", "attempts")
    return sorted(zip(*(slices.column(name).to_pylist() for name in columns), strict=True))


def handle(rig: Rig, handler, **how):
    """Consume all that waits."""
    finish(start(rig, handler, trigger=AVAILABLE_NOW, **how))


def start(rig: Rig, handler, **how):
    how = {"path": rig.path, "checkpoint": rig.folder / "consumed"} | how
    return consume(rig.spark, "orders", handler, **how)


def run_task(rig: Rig, task: str) -> list[tuple]:
    """Run a side task once, as a streaming query; return its reports."""
    batches = rig.batches(rig.source(task=task), checkpoint=task)
    rows = [row for batch in batches for row in batch]
    return [(row.task, row["from"], row.to, row.moved) for row in rows]


def fail(order):
    raise ValueError("no")


@pytest.fixture
def abandoned(rig):
    """Five messages in a handler's hands, whose query was killed twice the sweep's age ago."""
    queue = rig.orders(5, sweep_after=600.0)
    journal = Journal(rig.folder / "journal")

    def hang(order):
        journal.note(order["number"])
        time.sleep(60)

    # It runs no side tasks, or it would lead those who sweep for half a minute more.
    query = start(rig, hang, tasks="none")
    wait_until(journal.seen, query)
    query.stop()
    backdate(rig.store, 1200)
    rig.store.catalog.write(lambda c: c.execute(update(consumers).values(heartbeat_at=0)))
    return queue


def test_new_to_published_by_the_sink(rig):
    queue = make_queue(rig.store)

    rig.write(rig.spark.createDataFrame(orders(5)).coalesce(1))

    assert where(queue) == [("main", "loaded", 5, 0)]


def test_published_to_fired(rig):
    queue = rig.orders(5)
    seen = []

    finish(rig.each(rig.source(), lambda rows, _: seen.append((rows.count(), where(queue)))))

    assert (5, [("main", "fired", 5, 0)]) in seen


def test_fired_to_consumed_to_deleted(rig):
    queue = rig.orders(5)

    handle(rig, lambda order: True)

    assert where(queue) == []
    assert counts(queue, "fired", "deleted") == [5, 5]


def test_deleted_to_gone_with_its_file(rig):
    rig.orders(100_000)
    handle(rig, lambda order: True)
    assert len(leftover_files(rig.store)) == 1

    rig.store.vacuum(grace=0)

    assert leftover_files(rig.store) == set()
    audit(rig.store)


@pytest.mark.parametrize("handler", [lambda order: False, fail], ids=["false", "exception"])
def test_fired_to_sidelined(rig, handler):
    queue = rig.orders(5)

    handle(rig, handler)

    assert where(queue) == [("sideline", "loaded", 5, 1)]


def test_sidelined_to_deleted_from_main_at_once(rig):
    """A browser sees each message once, while batches are being settled."""
    queue = rig.orders(500)
    query = start(rig, fail, max_messages=100)
    sums = []

    def all_sidelined():
        slices = where(queue)
        sums.append(sum(messages for _, _, messages, _ in slices))
        return {magazine for magazine, *_ in slices} == {"sideline"}

    wait_until(all_sidelined, query)
    query.stop()

    assert set(sums) == {500}


def test_sidelined_to_shovelled_to_published(rig):
    queue = rig.orders(5)
    handle(rig, fail)
    before = rig.store.catalog.now()

    assert run_task(rig, "shovel") == [("shovel", "sideline", "main", 5)]

    assert where(queue) == [("main", "loaded", 5, 1)]
    # Since when it counts as tried again, whatever it was before.
    ((fired_at,),) = rig.read().selectExpr("unix_micros(_fired_at)").distinct().collect()
    assert before <= fired_at <= rig.store.catalog.now()


def test_published_again_to_fired_with_what_it_has_been_through(rig):
    queue = rig.orders(5)
    handle(rig, fail)
    run_task(rig, "shovel")

    handle(rig, lambda order: order["_attempt"] == 1)

    assert where(queue) == []


def test_fired_to_swept_to_sidelined(rig, abandoned):
    assert where(abandoned) == [("main", "fired", 5, 0)]

    assert run_task(rig, "sweep") == [("sweep", "main", "sideline", 5)]

    ((magazine, state, messages, _),) = where(abandoned)
    assert (magazine, state, messages) == ("sideline", "loaded", 5)
    assert set(abandoned.failures().column("kind").to_pylist()) == {"swept"}


def test_swept_to_shovelled_to_consumed_by_the_query_that_comes_back(rig, abandoned):
    run_task(rig, "sweep")
    run_task(rig, "shovel")

    handle(rig, lambda order: True)

    assert where(abandoned) == []
    assert counts(abandoned, "deleted", "swept") == [5, 5]
    audit(rig.store)
