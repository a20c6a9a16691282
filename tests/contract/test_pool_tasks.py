"""The side tasks of a pool: no query and no manager has to run beside it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select

from queue_core import ConsumerPool, Retry, constant
from queue_core.catalog.records.schedule import schedule
from queue_core.errors import BadOption
from queue_core.pool import life
from queue_core.upkeep.leader.lease import ROLE
from queue_core.upkeep.tasks import background, vacuum
from tests.clocks import tasks_due
from tests.contract.pools import Recorder
from tests.dump import backdate
from tests.factories import holder_of, make_filled, make_queue, numbers_of, orders
from tests.waiting import PATIENCE, until

HOURS = 7200.0
SIDE_TASKS = "ignis-side-tasks"


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(background, "LOOK_SECONDS", 0.05)


def test_a_pool_sweeps_and_shovels_and_handles_what_comes_back(store):
    """Messages that another process left in flight, in two queues."""
    soon = Retry(backoff=constant(0.1))
    mine, other = make_filled(store, 3, retry=soon), make_filled(store, 3, "other")
    for queue in (mine, other):
        queue.fire("all")
    backdate(store, HOURS)
    handled = Recorder()

    with ConsumerPool(store, "orders", handled):
        until(lambda: tasks_due(store) or numbers_of(other.browse(magazine="sideline")) != [])
        until(lambda: tasks_due(store) or handled.numbers == [0, 1, 2])

    assert numbers_of(other.browse(magazine="sideline")) == [0, 1, 2]
    reports = store.view("reports").to_pylist()
    assert {(row["task"], row["queue"]) for row in reports} == {
        ("sweep", "orders"),
        ("sweep", "other"),
        ("shovel", "orders"),
    }


@pytest.mark.each_catalog
def test_a_pool_that_soon_ends_looks_for_due_tasks_once_and_of_many_one_runs_them(
    store, monkeypatch
):
    monkeypatch.setattr(background, "LOOK_SECONDS", 3600.0)
    run, ran = vacuum.run, []
    monkeypatch.setattr(vacuum, "run", lambda *given: ran.append(1) or run(*given))
    other = make_filled(store, 2, "other")
    other.fire("all")
    make_queue(store)

    def looked():
        with store.catalog.read() as connection:
            return connection.scalar(select(schedule.c.task).limit(1))

    def drain(looked):
        with ConsumerPool(store, "orders", Recorder()) as pool:
            assert pool.drain(PATIENCE)
            until(looked)

    drain(looked)
    backdate(store, HOURS)
    tasks_due(store)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(drain, [lambda: ran] * 4))
    assert ran == [1]
    assert numbers_of(other.browse(magazine="sideline")) == [0, 1]


@pytest.mark.parametrize("how", [{"tasks": []}, {"browse": True}])
def test_a_pool_that_runs_no_tasks_stands_for_no_election(store, how):
    make_queue(store).load(orders(3))
    handled = Recorder()

    with ConsumerPool(store, "orders", handled, **how):
        until(lambda: handled.numbers == [0, 1, 2])
        assert SIDE_TASKS not in {thread.name for thread in threading.enumerate()}


def test_a_pool_that_stops_lets_others_lead_at_once(store):
    make_queue(store)

    def leader():
        return holder_of(store, ROLE)

    with ConsumerPool(store, "orders", Recorder(), tasks=["sweep"]):
        until(leader)
    assert leader() is None


def test_a_pool_runs_the_tasks_of_an_iterator(store):
    make_queue(store)

    with ConsumerPool(store, "orders", Recorder(), tasks=iter(["sweep"])):
        until(lambda: holder_of(store, ROLE))


def test_a_pool_that_stops_puts_messages_back_before_a_long_task_ends(store, monkeypatch):
    """A shovel with a rate may take hours."""
    come, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(*_):
        come.set()
        go_on.wait(PATIENCE)
        ended.set()
        return 0

    monkeypatch.setattr(vacuum, "run", slow)
    monkeypatch.setattr(life, "TASK_SECONDS", 0.1)
    make_filled(store, 20)
    handler = Recorder()
    handler.open.clear()
    before = set(threading.enumerate())
    pool = ConsumerPool(store, "orders", handler, concurrency=1, batch=2, tasks=["vacuum"])
    try:
        pool.start()
        handler.wait()
        until(lambda: tasks_due(store) or come.is_set())
        pool.stop(timeout=0.1)

        assert not ended.is_set()
        (row,) = store.view("queues").to_pylist()
        assert (row["waiting"], row["in_flight"]) == (20, 0)
    finally:
        go_on.set()
        handler.open.set()
    started = set(threading.enumerate()) - before
    until(lambda: not any(each.is_alive() for each in started if each.name == SIDE_TASKS))


@pytest.mark.parametrize(
    ("tasks", "said"), [(["sweeep"], "did you mean 'sweep'"), ("sweep", "give a list of names")]
)
def test_unknown_tasks_are_refused(store, tasks, said):
    make_queue(store)

    with pytest.raises(BadOption, match=said):
        ConsumerPool(store, "orders", Recorder(), tasks=tasks)


def test_what_an_earlier_life_of_a_pool_held_waits_again_when_the_next_one_starts(store):
    queue = make_filled(store, 5)
    queue.fire(3, consumer=store.consumer("till", beats=True))
    handler = Recorder()

    with ConsumerPool(store, "orders", handler, name="till", batch=1, tasks=[]) as pool:
        assert pool.drain(60)

    assert handler.numbers == [0, 1, 2, 3, 4]
    assert queue.browse().num_rows == 0
