"""The side tasks of a plain store: no query, no pool and no manager has to run beside it."""

import threading
from contextlib import ExitStack

import pytest

from queue_core import Retry, Store, constant
from queue_core.errors import BadName, BadOption, NoSuchQueue
from queue_core.upkeep.leader.lease import ROLE
from queue_core.upkeep.tasks import background
from tests.clocks import tasks_due
from tests.dump import backdate
from tests.factories import (
    drop,
    holder_of,
    make_filled,
    make_queue,
    numbers_of,
    orders,
    with_sidelined,
)
from tests.waiting import until

HOURS = 7200.0
#: A message that has failed is due again at once.
SOON = Retry(backoff=constant(0.1))


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(background, "LOOK_SECONDS", 0.05)


def leader(store):
    return holder_of(store, ROLE)


def test_it_sweeps_and_shovels_all_queues_and_those_created_later(store):
    first = make_filled(store, 3, retry=SOON)
    first.fire("all")
    backdate(store, HOURS)

    with store.side_tasks():
        later = with_sidelined(store, 3, "later", retry=SOON)
        for queue in (first, later):
            until(lambda queue=queue: tasks_due(store) or numbers_of(queue.peek(10)))

    reports = store.view("reports").to_pylist()
    assert {(row["task"], row["queue"]) for row in reports} == {
        ("sweep", "orders"),
        ("shovel", "orders"),
        ("shovel", "later"),
    }


def test_it_runs_the_tasks_of_the_queues_that_are_named_even_when_one_is_dropped(store):
    names = ("mine", "other", "gone")
    mine, other, gone = (with_sidelined(store, 3, name, retry=SOON) for name in names)

    with store.side_tasks(["gone", "mine"], tasks=["shovel"]):
        drop(gone)
        until(lambda: tasks_due(store) or numbers_of(mine.peek(10)))
        assert leader(store) is None

    assert numbers_of(other.browse(magazine="sideline")) == [0, 1, 2]


def test_it_leads_while_it_runs_and_ends_with_its_thread(store):
    make_queue(store)
    before = {*threading.enumerate()}

    with store.side_tasks("orders", tasks=["sweep"]):
        until(lambda: leader(store))
        assert "ignis-side-tasks" in {thread.name for thread in {*threading.enumerate()} - before}

    assert leader(store) is None
    assert "ignis-side-tasks" not in {thread.name for thread in {*threading.enumerate()} - before}


def test_a_zookeeper_elects_the_leader_among_plain_stores(store, address, zookeeper):
    queue = make_queue(store)
    threads = []
    with ExitStack() as stack:
        for _ in range(2):
            process = stack.enter_context(Store(address))
            threads.append(process.side_tasks(tasks=["sweep"], zookeeper=zookeeper.hosts))
            threads[-1].__enter__()
        for thread in threads:
            queue.load(orders(2))
            queue.fire("all")
            backdate(store, HOURS)
            until(lambda: tasks_due(store) or not store.view("queues")["in_flight"][0].as_py())
            thread.__exit__(None, None, None)

    assert queue.browse(magazine="sideline").num_rows == 4
    # The lease in the catalog has elected nobody.
    assert leader(store) is None


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"tasks": ["sweeep"]}, BadOption, "did you mean 'sweep'"),
        ({"tasks": "sweep"}, BadOption, "give a list of names"),
        ({"queues": []}, BadOption, "name at least one queue"),
        ({"queues": "order"}, NoSuchQueue, "did you mean 'orders'"),
        ({"queues": "a b"}, BadName, "a b"),
        ({"zookeeper": "here:there"}, BadOption, "here:there"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(store, arguments, error, said):
    make_queue(store)

    with pytest.raises(error, match=said):
        store.side_tasks(**arguments)
