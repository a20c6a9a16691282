"""The side tasks of a whole store in a query of their own, beside consumers and in a manager."""

import json
import shutil
import threading

import pytest

from pyspark_ignis import IgnisManager, consume, side_tasks
from queue_core.errors import BadOption
from queue_core.upkeep.tasks.registry import TASKS
from tests.dump import backdate
from tests.factories import orders
from tests.spark.rig import assert_rows, counts, wait_until


def refuse(order):
    return False


def started(rig, name="orders", session=None, **how):
    return consume(
        session or rig.spark, name, refuse, path=rig.path, checkpoint=rig.folder / f"of-{name}",
        name=name, side_tasks="stream", idleWait="100ms", **how,
    )  # fmt: skip


def side_queries(rig, session=None):
    active = (session or rig.spark).streams.active
    return [query for query in active if (query.name or "").startswith("ignis side")]


def moved(query):
    """The observed counts of a query, summed over its progress."""
    observed = [
        progress.observedMetrics.get("ignis_side_tasks") for progress in query.recentProgress
    ]
    return {name: sum(row[name] for row in observed if row) for name in ("shovel", "sweep")}


def test_consumers_share_one_query_of_side_tasks_that_ends_with_the_last(rig):
    """It shovels for both, and for a queue that nobody consumes; its progress tells it."""
    queues = [
        rig.orders(2, name, retry=None, shovel_interval=0.2)
        for name in ("orders", "bills", "third")
    ]
    queues[2].sideline(queues[2].fire("all"))
    first = started(rig)
    (tasks,) = side_queries(rig)
    wait_until(lambda: counts(queues[2], "shovelled", magazine="sideline") == [2], tasks)
    wait_until(lambda: moved(tasks)["shovel"] >= 2, tasks)
    latest = next(each for each in tasks.recentProgress if each.numInputRows).sources[0]
    assert json.loads(latest.latestOffset)["claimed"]["shovel"] >= 1

    second = started(rig, "bills")
    assert [query.id for query in side_queries(rig)] == [tasks.id]
    first.stop()
    assert side_queries(rig) != []
    second.stop()
    wait_until(lambda: side_queries(rig) == [])


@pytest.mark.nightly
def test_one_that_has_ended_is_started_again_by_those_that_need_it(rig, monkeypatch):
    """Also if the consumer that has started it has ended, and its checkpoint is gone."""
    monkeypatch.setattr(side_tasks, "MENDING_SECONDS", 1)
    queues = [rig.orders(2, name, retry=None, shovel_interval=0.2) for name in ("orders", "bills")]
    first, second = started(rig), started(rig, "bills")
    wait_until(lambda: counts(queues[1], "shovelled", magazine="sideline")[0] >= 2, second)
    (tasks,) = side_queries(rig)
    first.stop()
    tasks.stop()
    shutil.rmtree(rig.folder / "of-orders")

    wait_until(lambda: side_queries(rig) != [])
    queues[0].load(orders(1, first=9))
    queues[0].sideline(queues[0].fire("all"))
    wait_until(lambda: counts(queues[0], "waiting") == [3])
    second.stop()
    wait_until(lambda: side_queries(rig) == [])


def test_without_a_thread_that_watches_them_the_side_tasks_end_with_their_consumer(
    rig, monkeypatch
):
    rig.orders(2, retry=None)
    real = threading.Thread.start

    def crowded(thread):
        if thread.name == "ignis-side-tasks":
            raise RuntimeError("can't start new thread")
        real(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", crowded)
        with pytest.raises(RuntimeError, match="new thread"):
            started(rig)
    assert side_queries(rig) == []

    started(rig).stop()
    wait_until(lambda: side_queries(rig) == [])


def test_each_session_has_its_own(rig):
    rig.orders(2, retry=None)
    rig.orders(2, "bills", retry=None)
    session = rig.spark.newSession()
    here, there = started(rig), started(rig, "bills", session)
    assert len(side_queries(rig)) == len(side_queries(rig, session)) == 1

    here.stop()
    wait_until(lambda: side_queries(rig) == [])
    assert len(side_queries(rig, session)) == 1
    there.stop()
    wait_until(lambda: side_queries(rig, session) == [])


def test_a_manager_runs_the_side_tasks_in_a_query_and_starts_it_again(rig):
    queue = rig.orders(3, retry=None, shovel_interval=0.2)
    other = rig.orders(4, "other", sweep_after=60.0)
    other.fire("all")
    backdate(rig.store, 7200)
    rig.store.catalog.write(_make_sweep_due)
    manager = IgnisManager(
        rig.spark, path=rig.path, handlers={"orders": refuse}, tasks=("shovel", "sweep"),
        checkpoints=rig.folder / "checkpoints", side_tasks="stream",
    )  # fmt: skip
    with manager:
        tasks = manager.side_task_query
        wait_until(lambda: counts(queue, "shovelled", magazine="sideline")[0] >= 3, tasks)
        wait_until(lambda: counts(other, "swept") == [4], tasks)
        wait_until(lambda: moved(tasks)["sweep"] == 4, tasks)
        tasks.stop()
        assert manager.side_task_query is None
        manager.refresh()
        again = manager.side_task_query
        wait_until(lambda: moved(again)["shovel"] >= 3, again)
        # What it has done is done: a restart reports nothing twice.
        assert moved(again)["sweep"] == 0
    assert rig.spark.streams.active == []
    swept = rig.view("reports").where("task = 'sweep'").selectExpr("sum(moved)")
    assert_rows(swept, 4)


@pytest.mark.nightly
@pytest.mark.parametrize(("tasks", "queries"), [(TASKS, 1), (("shovel",), 2)])
def test_the_end_of_a_consumer_leaves_the_side_tasks_of_a_manager_alone(rig, tasks, queries):
    """It starts a query of its own where the manager runs only some of the tasks."""
    rig.orders(1)
    manager = IgnisManager(
        rig.spark, path=rig.path, handlers={}, tasks=tasks,
        checkpoints=rig.folder / "checkpoints", side_tasks="stream",
    )  # fmt: skip
    with manager:
        (before,) = side_queries(rig)
        query = started(rig)
        assert len(side_queries(rig)) == queries
        query.stop()
        # Its thread ends.
        wait_until(lambda: "ignis-side-tasks" not in {each.name for each in threading.enumerate()})
        assert manager.side_task_query is not None
        assert [query.id for query in side_queries(rig)] == [before.id]


@pytest.mark.nightly
def test_a_manager_begins_its_side_tasks_when_those_of_a_consumer_end(rig, monkeypatch, caplog):
    monkeypatch.setattr("pyspark_ignis.manager.MENDING_SECONDS", 1)
    rig.orders(1)
    consumer = started(rig)
    manager = IgnisManager(
        rig.spark, path=rig.path, handlers={}, tasks=("shovel",),
        checkpoints=rig.folder / "checkpoints", side_tasks="stream",
    )  # fmt: skip
    with manager:
        assert manager.side_task_query is None
        consumer.stop()
        wait_until(lambda: manager.side_task_query is not None)
        assert [query.id for query in side_queries(rig)] == [manager.side_task_query.id]
    assert "cannot be started" not in caplog.text


def _make_sweep_due(connection):
    from queue_core.catalog.record_tables import schedule

    values = {"queue_id": 0, "task": "sweep", "begun_at": 0, "due_at": 0}
    connection.execute(schedule.insert().values(**values))


@pytest.mark.nightly
def test_none_runs_none(rig):
    queue = rig.orders(2, retry=None, shovel_interval=0.1)
    query = consume(
        rig.spark, "orders", refuse, path=rig.path, checkpoint=rig.folder / "checkpoint",
        side_tasks="none",
    )  # fmt: skip
    wait_until(lambda: counts(queue, "sidelined") == [2], query)
    queue.load(orders(1, first=9))
    wait_until(lambda: counts(queue, "sidelined") == [3], query)
    assert counts(queue, "shovelled", magazine="sideline") == [0]
    assert side_queries(rig) == []


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"side_tasks": "streams"}, "side_tasks='streams': use 'thread'"),
        ({"side_tasks": "none", "tasks": "sweep"}, "tasks= names the tasks of the thread"),
    ],
)
def test_what_contradicts_is_refused(rig, how, told):
    rig.orders(1)
    with pytest.raises(BadOption, match=told):
        consume(rig.spark, "orders", refuse, path=rig.path, checkpoint="/nowhere", **how)
