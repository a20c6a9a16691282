"""Sweeps through Spark with a leader by a real ZooKeeper: one query sweeps; without it, none."""

import pytest
from sqlalchemy import select, update

from pyspark_ignis import IgnisManager
from queue_core.catalog.records.schedule import schedule
from queue_core.upkeep.tasks.background import TaskThread
from tests.dump import backdate
from tests.factories import numbers_of, orders
from tests.spark.rig import counts, wait_until

pytestmark = pytest.mark.nightly


@pytest.fixture
def managers(rig, zookeeper):
    """Two of the store's managers, which do nothing but sweep."""
    made = [
        IgnisManager(
            rig.spark,
            path=rig.path,
            handlers={},
            checkpoints=rig.folder / name,
            zookeeper=zookeeper.hosts,
            tasks=("sweep",),
        )
        for name in ("one", "other")
    ]
    for manager in made:
        manager.start()
    yield made
    for manager in made:
        manager.stop(grace=0)


def leading(managers):
    threads = [(each, thread) for each in managers for thread in each._threads]
    made = [(each, thread) for each, thread in threads if isinstance(thread, TaskThread)]
    return [manager for manager, thread in made if thread.prepare()[1].leads()]


def stuck(rig, queue, count, first):
    """Orders that somebody has fired long ago, and never finished; a sweep is due at once."""
    queue.load(orders(count, first))
    queue.fire("all")
    backdate(rig.store, 7200)
    due = update(schedule).where(schedule.c.task == "sweep").values(due_at=0)
    rig.store.catalog.write(lambda connection: connection.execute(due))


def is_scheduled(rig):
    with rig.store.catalog.read() as connection:
        query = select(schedule.c.task).where(schedule.c.task == "sweep")
        return connection.scalar(query) is not None


def test_of_two_managers_the_one_that_zookeeper_elects_sweeps(rig, zookeeper, managers):
    queue = rig.orders(0)
    for manager in managers:
        manager.refresh()
    wait_until(lambda: len(leading(managers)) == 1 and is_scheduled(rig))
    stuck(rig, queue, 5, 0)
    wait_until(lambda: counts(queue, "swept") == [5])

    zookeeper.stop()
    wait_until(lambda: not leading(managers))
    zookeeper.start()

    wait_until(lambda: len(leading(managers)) == 1)
    stuck(rig, queue, 3, 100)
    wait_until(lambda: counts(queue, "swept") == [8])
    (first,) = leading(managers)
    first.stop(grace=0)

    wait_until(lambda: len(leading(managers)) == 1)
    assert leading(managers) != [first]
    stuck(rig, queue, 2, 200)
    wait_until(lambda: counts(queue, "swept") == [10])
    assert numbers_of(queue.browse()) == []
