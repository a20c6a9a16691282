"""Handlers that are late within ignis: their call ends there, and no other thread notices."""

import threading
import time
from contextlib import contextmanager
from unittest import mock

import pytest

from queue_core import ConsumerPool
from queue_core.pool.worker import Worker
from queue_core.support.coalescing import Coalescer
from queue_core.testing import handle
from queue_core.waiting import joint_load
from tests.factories import main, make_filled, make_queue, numbers_of, orders
from tests.waiting import PATIENCE, until, waiting_loads

pytestmark = pytest.mark.each_catalog

TIMEOUT = 0.3
#: The first load of a handler has this number.
LATE = 1000
#: Where the thread of a handler may be, within a load: before the step, or after it.
PLACES = [
    (Coalescer, "_lead", "before"),
    (Coalescer, "_lead", "after"),
    (joint_load, "_staged", "before"),
    (joint_load, "_staged", "after"),
    (joint_load, "commit_load", "before"),
    (joint_load, "commit_load", "after"),
    (joint_load, "_groups", "after"),
]


@contextmanager
def stopped(owner, name, where, late):
    """Stop the thread *late* when it comes to a place; yield its event, and what lets it go on."""
    real, come, go_on = getattr(owner, name), threading.Event(), threading.Event()

    def step(*arguments):
        mine = threading.current_thread() in late and not come.is_set()
        if mine and where == "before":
            come.set()
            assert go_on.wait(PATIENCE)
        result = real(*arguments)
        if mine and where == "after":
            come.set()
            assert go_on.wait(PATIENCE)
        return result

    with mock.patch.object(owner, name, step):
        yield come, go_on


class Innocents:
    """Threads that load meanwhile, each several times."""

    def __init__(self, queues, first, each=3, threads=6):
        self.acknowledged, self.errors = [], []
        self._threads = [
            threading.Thread(
                target=self._run, args=(queues[n % len(queues)], first + n * each, each)
            )
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, queue, first, count):
        for number in range(first, first + count):
            try:
                queue.load(orders(1, number))
                self.acknowledged.append(number)
            except BaseException as error:  # noqa: BLE001 - none may come
                self.errors.append(error)

    def join(self):
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert self.errors == []


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize(("owner", "name", "where"), PLACES)
def test_a_handler_that_is_late_within_a_load_harms_no_other_load(store, owner, name, where):
    inputs = [make_queue(store, each, shards=1) for each in ("orders", "refunds")]
    outputs = [make_queue(store, each, shards=1) for each in ("shipments", "letters")]
    after, late = [], []

    def handler(message):
        if message["number"] == 0:
            late.append(threading.current_thread())
        outputs[0].load(orders(1, LATE + message["number"]))
        after.append(message["number"])
        return True

    options = {"concurrency": 1, "batch": 1, "handler_timeout": TIMEOUT, "tasks": ()}
    with (
        ConsumerPool(store, "orders", handler, **options) as pool,
        ConsumerPool(store, "refunds", handler, **options) as other,
        stopped(owner, name, where, late) as (come, go_on),
    ):
        inputs[0].load(orders(1))
        assert come.wait(PATIENCE)
        innocents = Innocents(outputs, 0)
        until(lambda: pool.counts.get("sidelined"))
        go_on.set()
        innocents.join()
        inputs[0].load(orders(3, 2))
        inputs[1].load(orders(3, 5))
        assert pool.drain(PATIENCE)
        assert other.drain(PATIENCE)
    # The late load was made, and nothing of the handler ran after it.
    loaded = numbers_of(outputs[0].browse()) + numbers_of(outputs[1].browse())
    assert [n for n in sorted(loaded) if n < LATE] == sorted(innocents.acknowledged)
    assert len(set(loaded)) == len(loaded)
    assert LATE in loaded
    assert 0 not in after
    assert {2, 3, 4, 5, 6, 7} <= set(after)
    assert store.admin.fsck(deep=True).num_rows == 0


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize("leads", [False, True])
def test_a_handler_that_is_late_while_it_loads_together_with_others(store, leads):
    """It waits for the thread that loads for it, or it loads for the others."""
    queue, output = make_queue(store), make_queue(store, "shipments")
    committing, go_on = [], [threading.Event(), threading.Event()]
    real = joint_load.commit_load

    def commit(*arguments):
        committing.append(threading.current_thread().name)
        assert go_on[min(len(committing), 2) - 1].wait(PATIENCE)
        return real(*arguments)

    def handler(message):
        output.load(orders(1, LATE))
        return True

    # Not by a load that is joined, which would wait for the first one on SQLite.
    with mock.patch.object(joint_load.JointLoads, "joins", return_value=False):
        queue.load(orders(1))
    with mock.patch.object(joint_load, "commit_load", commit):
        first = Innocents([output], 0, each=1, threads=1)
        until(lambda: committing)
        with ConsumerPool(store, "orders", handler, concurrency=1, handler_timeout=TIMEOUT) as pool:
            until(lambda: waiting_loads(store) == 1)
            others = Innocents([output], 1, each=1, threads=3)
            until(lambda: waiting_loads(store) == 4)
            if leads:
                go_on[0].set()
            until(lambda: len([t for t in threading.enumerate() if t.name == "worker 1"]) == 2)
            until(lambda: committing[1:] == ["worker 1"] * leads)
            for event in go_on:
                event.set()
            first.join()
            others.join()
            until(lambda: pool.counts == {"sidelined": 1})
    assert main(output) == [0, 1, 2, 3, LATE]


@pytest.mark.parametrize(
    "wait", ["fire", "load", pytest.param("drain", marks=pytest.mark.each_catalog(False))]
)
def test_a_handler_that_waits_for_ever_within_ignis_ends(store, wait):
    queue, output = make_queue(store), make_queue(store, "shipments")
    full = make_filled(store, 1, "full", max_size=1, overflow="block")
    ended = []

    def handler(message):
        try:
            match wait:
                case "fire":
                    output.fire(timeout=None)
                case "load":
                    full.load(orders(1, 1))
                case "drain":
                    pool.drain()
        finally:
            ended.append(message["number"])
        return True

    queue.load(orders(2))
    with ConsumerPool(store, "orders", handler, concurrency=1, handler_timeout=TIMEOUT) as pool:
        until(lambda: sorted(ended) == [0, 1])
        until(lambda: pool.counts == {"sidelined": 2})
    assert numbers_of(full.browse()) == [0]
    # Nobody waits in a line any more.
    output.load(orders(1))
    assert len(output.fire(timeout=PATIENCE)) == 1


def test_what_a_late_handler_cleans_up_is_cleaned_up(store):
    queue, other = make_queue(store), make_queue(store, "shipments")
    other.load(orders(5))
    fired = threading.Event()

    def handler(message):
        firing = other.fire("all")
        fired.set()
        try:
            while True:
                time.sleep(0.001)
        finally:
            other.reload(firing)

    queue.load(orders(1))
    with ConsumerPool(store, "orders", handler, concurrency=1, handler_timeout=TIMEOUT):
        assert fired.wait(PATIENCE)
        until(lambda: store.view("queues", "shipments")["waiting"].to_pylist() == [5])


@pytest.mark.each_catalog(False)
def test_a_limit_of_the_main_thread_waits_for_the_end_of_a_load_too(store):
    """As in a task of Spark."""
    queue, output = make_queue(store), make_queue(store, "shipments")
    queue.load(orders(3))
    real, after = joint_load.commit_load, []

    def slow(*arguments):
        end = time.monotonic() + 3 * TIMEOUT
        while time.monotonic() < end:
            time.sleep(0.01)
        return real(*arguments)

    def handler(message):
        if message["number"] == 1:
            with mock.patch.object(joint_load, "commit_load", slow):
                output.load(orders(1, 1))
        else:
            output.load(orders(1, message["number"]))
        after.append(message["number"])
        return True

    handled = handle(queue, handler, handler_timeout=TIMEOUT)
    handled.assert_sidelined(1, kind="timeout", reason=f"not done after {TIMEOUT:g} s")
    handled.assert_deleted(2)
    assert main(output) == [0, 1, 2]
    assert sorted(after) == [0, 2]


def test_a_worker_that_fails_where_nobody_took_over_ends_the_pool_aloud(store):
    make_filled(store, 1)
    from queue_core.support.interruption import TimedOut

    with mock.patch.object(Worker, "_serve", side_effect=TimedOut("by somebody else")):
        pool = ConsumerPool(store, "orders", lambda message: True, concurrency=1).start()
        until(lambda: pool.error is not None)
        with pytest.raises(TimedOut):
            pool.stop()
