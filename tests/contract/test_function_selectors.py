"""Selectors as Python functions of Arrow columns."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from queue_core import ConsumerPool, Predicate
from queue_core.errors import BadSelector
from tests.contract.pools import Recorder
from tests.dump import dump
from tests.factories import make_filled, numbers_of
from tests.waiting import until


def sevenths(batch):
    return pc.equal(pc.subtract(batch["number"], pc.multiply(pc.divide(batch["number"], 7), 7)), 0)


@pytest.fixture
def queue(store):
    return make_filled(store, 30)


def test_a_function_selects_what_is_fired_peeked_at_and_browsed(queue):
    assert numbers_of(queue.peek(2, selector=sevenths)) == [0, 7]
    firing = queue.fire(2, selector=sevenths)
    assert numbers_of(firing.messages) == [0, 7]
    assert numbers_of(queue.browse(selector=sevenths)) == [0, 7, 14, 21, 28]
    assert numbers_of(queue.browse(selector="number < 2")) == [0, 1]
    assert numbers_of(queue.fire(order_by="number DESC", selector=sevenths).messages) == [28]
    assert numbers_of(queue.fire("all", order="global", selector=sevenths).messages) == [14, 21]
    assert numbers_of(queue.fire(selector=sevenths, fallback=True).messages) == [1]


def test_a_predicate_names_the_columns_that_its_function_gets(queue):
    seen = []

    def young(batch):
        seen.append(batch.schema.names)
        return pc.less(batch["_age"], 3600)

    assert len(queue.fire(3, selector=Predicate(young, ["_age", "customer"]))) == 3
    assert len(queue.fire(3, selector=young)) == 3
    assert seen[0] == ["_age", "customer"]
    assert {"number", "customer", "amount", "_message_id", "_age"} < set(seen[-1])


def test_a_function_is_asked_again_each_time(queue):
    """It may depend on anything, so its results are not kept."""
    wanted = {3}

    def chosen(batch):
        return pc.is_in(batch["number"], pa.array(list(wanted)))

    by = Predicate(chosen, ["number"])
    assert numbers_of(queue.peek(selector=by)) == [3]
    wanted.add(5)
    assert numbers_of(queue.fire("all", selector=by).messages) == [3, 5]


def fails(_):
    raise ValueError("no such price")


def test_a_function_that_fails_is_named_and_nothing_changes(store, queue):
    """As for every wrong result in `tests/unit/selector/test_by_function.py`."""
    store.consumer()
    before = dump(store)
    for look in (queue.fire, queue.peek, queue.browse):
        with pytest.raises(BadSelector, match="fails raised ValueError: no such price"):
            look(selector=fails)
    assert dump(store) == before


def test_a_pool_fires_what_its_function_selects(store, queue):
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, selector=sevenths, tasks=[]) as pool:
        until(lambda: pool.counts == {"deleted": 5})
    assert recorder.numbers == [0, 7, 14, 21, 28]


def test_a_function_that_fails_ends_its_pool(store, queue):
    pool = ConsumerPool(store, "orders", Recorder(), selector=fails, tasks=[]).start()
    until(lambda: pool.error is not None)
    with pytest.raises(BadSelector, match="fails raised ValueError"):
        pool.stop()
    assert queue.browse().num_rows == 30
    with pytest.raises(BadSelector, match="there is no column"):
        ConsumerPool(store, "orders", Recorder(), selector=Predicate(fails, ["nmber"]))


def test_what_a_pool_has_handled_before_its_function_fails_is_settled(store, queue):
    recorder = Recorder()

    def chosen(batch):
        return fails(batch) if recorder.messages else sevenths(batch)

    how = {"concurrency": 1, "batch": 1, "tasks": []}
    pool = ConsumerPool(store, "orders", recorder, selector=chosen, **how).start()
    until(lambda: pool.error is not None)
    with pytest.raises(BadSelector, match="chosen raised ValueError"):
        pool.stop()
    assert pool.counts == {"deleted": 1}
    assert queue.browse().num_rows == 29
