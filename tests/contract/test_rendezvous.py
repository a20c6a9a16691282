"""Rendezvous: a load into a queue that keeps no message waits until its messages are fired."""

import time
from types import SimpleNamespace

import pytest

from queue_core.catalog.slices import id_map
from queue_core.errors import CatalogUnavailable, QueueDeactivated, QueueFull
from queue_core.values.model import Batch
from queue_core.verbs.capacity import wait_line
from queue_core.verbs.capacity.bounds import CapacityExceeded, OnFull
from queue_core.waiting import rendezvous
from tests.books import audit
from tests.factories import make_queue, make_staged, numbers_of, orders, publish_once
from tests.waiting import PATIENCE, Caller, standing, until, waits

pytestmark = pytest.mark.each_catalog


@pytest.fixture
def queue(store):
    return make_queue(store, max_size=0)


def test_a_load_returns_when_all_its_messages_are_fired(store, queue):
    load = Caller(lambda: queue.load(orders(3)))
    until(lambda: queue.peek().num_rows == 3)
    assert load.is_alive()

    first = queue.fire(2)
    time.sleep(0.05)
    assert load.is_alive(), "one of them waits still"
    second = queue.fire("all")

    ids = load.done()
    assert ids.to_pylist() == [*first.ids.to_pylist(), *second.ids.to_pylist()]
    assert standing(store) == []


def test_a_load_whose_file_is_gone_when_its_turn_comes_writes_it_again(store, queue, in_files):
    first = Caller(lambda: queue.load(orders(1)))
    until(lambda: queue.peek().num_rows == 1)
    second = Caller(lambda: queue.load(orders(1, 1)))
    waits(store, 2)
    # As if it had waited for longer than vacuum leaves files alone.
    assert len(store.admin.vacuum(grace=0)) == 1

    for number, caller in enumerate((first, second)):
        assert numbers_of(queue.fire(timeout=PATIENCE).messages) == [number]
        caller.done()


def test_a_waiting_firing_gets_the_messages(store, queue):
    fire = Caller(lambda: queue.fire("all", timeout=PATIENCE))
    waits(store, 1, "fire")
    queue.load(orders(2), timeout=PATIENCE)
    assert numbers_of(fire.done().messages) == [0, 1]


@pytest.mark.parametrize("timeout", [0, 0.1])
def test_messages_that_nobody_fires_are_withdrawn(store, queue, timeout):
    with pytest.raises(QueueFull, match=r"\(max_size=0\), and no consumer fires now"):
        queue.load(orders(3), timeout=timeout)
    assert not queue.fire("all")
    assert audit(store).messages == {}


def test_messages_fired_before_the_timeout_stay_fired(store, queue, monkeypatch):
    load = Caller(lambda: queue.load(orders(5), timeout=PATIENCE))
    until(lambda: queue.peek().num_rows == 5)
    firing = queue.fire(2)
    # Its time is up at its next look.
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + PATIENCE)
    monkeypatch.setattr(wait_line, "time", later)
    with pytest.raises(QueueFull, match="2 of the messages were fired, and are loaded"):
        load.done()
    assert sorted(audit(store).messages) == firing.ids.to_pylist()
    assert queue.delete(firing) == 2


def test_a_load_waits_on_if_one_ahead_of_it_that_counted_as_dead_is_back(store, queue, monkeypatch):
    """It saw nobody ahead, and its transaction does."""
    refused, load_bounded = [], rendezvous.load_bounded

    def refuse_first(*given):
        if not refused:
            refused.append(CapacityExceeded(queue.info, "after 1 other load in line"))
            raise refused[0]
        return load_bounded(*given)

    monkeypatch.setattr(rendezvous, "load_bounded", refuse_first)
    load = Caller(lambda: queue.load(orders(2)))
    until(lambda: queue.peek().num_rows == 2 or not load.is_alive())
    assert numbers_of(queue.fire("all").messages) == [0, 1]
    assert len(load.done()) == 2
    assert refused


def test_an_outage_after_a_load_leaves_open_what_became_of_its_messages(store, queue, monkeypatch):
    """They were committed, so that a load that is repeated would double them."""
    load = Caller(lambda: queue.load(orders(2)))
    until(lambda: queue.peek().num_rows == 2)

    def fail(*_):
        raise CatalogUnavailable("the connection is lost; nothing was changed")

    monkeypatch.setattr(id_map, "located", fail)
    with pytest.raises(CatalogUnavailable, match="may wait or be fired: look before") as raised:
        load.done()
    assert raised.value.outcome_unknown
    assert numbers_of(queue.fire("all").messages) == [0, 1]


@pytest.mark.parametrize("rows", [2, 0], ids=["query", "txnAppId"])
def test_a_batch_waits_until_its_messages_are_fired(store, queue, rows):
    """A write that names itself does not say how many rows it has."""
    where = (store.catalog, store.storage, queue.info, make_staged(queue, orders(2)))
    batch, patient = Batch("etl", 1, rows), OnFull(timeout=PATIENCE)
    load = Caller(lambda: publish_once(*where, batch, patient))
    until(lambda: queue.peek(2).num_rows == 2)
    time.sleep(0.05)
    assert load.is_alive()

    assert numbers_of(queue.fire("all").messages) == [0, 1]

    assert load.done()
    assert not publish_once(*where[:3], make_staged(queue, orders(2)), batch, patient)


def test_loads_are_met_one_at_a_time_in_order_of_arrival(store, queue):
    loads = []
    for number in range(3):
        loads.append(Caller(lambda number=number: queue.load(orders(2, 10 * number))))
        waits(store, number + 1)

    assert queue.peek().num_rows == 2
    fired = [numbers_of(queue.fire("all", timeout=PATIENCE).messages) for _ in range(3)]

    assert fired == [[0, 1], [10, 11], [20, 21]]
    for load in loads:
        load.done()


def test_compaction_does_not_hide_offered_messages(store, queue):
    load = Caller(lambda: queue.load(orders(30), timeout=PATIENCE))
    until(lambda: queue.peek(30).num_rows == 30)
    fired = queue.fire(10)
    queue.admin.compact()
    assert load.is_alive()

    rest = queue.fire("all")

    assert len(load.done()) == 30
    assert queue.delete(fired) + queue.delete(rest) == 30


def test_deactivation_ends_the_waiting(store, queue):
    first = Caller(lambda: queue.load(orders(1), timeout=6.0))
    until(lambda: queue.peek().num_rows == 1)
    second = Caller(lambda: queue.load(orders(1)))
    waits(store, 2)

    queue.admin.deactivate()

    with pytest.raises((QueueDeactivated, QueueFull)):
        first.done()
    with pytest.raises(QueueDeactivated):
        second.done()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CatalogUnavailable("not now")])
def test_messages_of_a_load_that_is_interrupted_are_withdrawn(store, queue, monkeypatch, error):
    """Its caller may load them again."""
    wait = wait_line.WaitLine.wait

    def interrupted(line, look, *, first=True):
        if not first:
            raise error
        return wait(line, look)

    monkeypatch.setattr(wait_line.WaitLine, "wait", interrupted)
    with pytest.raises(type(error)):
        queue.load(orders(2))

    assert audit(store).messages == {}
    assert standing(store) == []
    assert not getattr(error, "outcome_unknown", False)
