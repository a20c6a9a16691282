"""Firings and settlements within the caller's transaction: with its rows, or not at all."""

import gc
import time
from pathlib import Path

import pytest

from queue_core import Conflict, Settlement, limit
from queue_core.catalog.holders import consumers
from queue_core.errors import BadOutcome, ConsumerFenced, DamagedSegment
from queue_core.values.ids import IdSet
from tests.contract.callers import KINDS, Seller
from tests.factories import load_singly, make_filled, make_queue, numbers_of, orders
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import PATIENCE, all_at_once

pytestmark = pytest.mark.each_catalog


@pytest.fixture(params=KINDS)
def caller(request, store):
    with Seller(store, request.param) as made:
        yield made


def taken(firing):
    return sorted(numbers_of(firing.messages))


def test_a_firing_and_the_end_of_its_messages_are_committed_with_the_rows_or_never_were(
    store, caller
):
    queue = make_filled(store, 3, shards=2)
    before = queue.browse().to_pylist()
    with caller.connected() as connection:
        for finish in (connection.rollback, connection.rollback, connection.commit):
            firing = queue.within(connection).fire("all")
            for number in taken(firing):
                caller.sell(connection, number)
            assert queue.within(connection).delete(firing) == 3
            assert queue.browse().to_pylist() == before
            assert caller.sold() == []
            finish()
            assert taken(firing) == [0, 1, 2]

    assert caller.sold() == [0, 1, 2]
    assert queue.browse().num_rows == 0


def test_every_outcome_goes_with_the_transaction(store, caller):
    queue = make_filled(store, 4)
    with caller.connected() as connection:
        for finish in (connection.rollback, connection.commit):
            firing = queue.within(connection).fire("all")
            ids = firing.ids.to_pylist()
            queue.within(connection).delete(ids[:1])
            queue.within(connection).sideline(ids[1:2], "no funds")
            queue.within(connection).reload(ids[2:3])
            queue.within(connection).settle(Settlement(deleted=IdSet.of(ids[3:])), firing)
            finish()

    assert numbers_of(queue.browse()) == [2]
    assert numbers_of(queue.browse(magazine="sideline")) == [1]
    assert queue.failures().column("reason").to_pylist() == ["no funds"]


def test_messages_that_were_fired_before_end_with_the_transaction(store, caller):
    queue = make_filled(store, 2)
    firing = queue.fire("all")
    with caller.connected() as connection:
        queue.within(connection).delete(firing)
        connection.rollback()
        assert queue.browse().num_rows == 2
        queue.delete(firing.ids[:1])
        caller.sell(connection, 0)
        with pytest.raises(Conflict, match="1 of 2 messages are not held any more"):
            queue.within(connection).delete(firing)
        with pytest.raises(BadOutcome):
            queue.within(connection).delete([1 << 40])
        connection.rollback()
        # The refused call has settled nothing.
        assert queue.within(connection).delete(firing.ids[1:]) == 1
        connection.commit()
    assert caller.sold() == []
    assert queue.browse().num_rows == 0


def test_the_messages_of_the_transaction_itself_can_be_fired(store, caller):
    queue = make_queue(store)
    with caller.connected() as connection:
        queue.within(connection).load(orders(2))
        firing = queue.within(connection).fire("all", selector="number = 1")
        assert taken(firing) == [1]
        queue.within(connection).delete(firing)
        # What it has fired is not found again.
        assert len(queue.within(connection).fire("all", selector="number = 1")) == 0
        connection.commit()
    assert numbers_of(queue.browse()) == [0]


@pytest.mark.parametrize(
    ("how", "numbers"),
    [
        ({"selector": "number > 1"}, [2, 3]),
        ({"order_by": "number DESC"}, [3, 2]),
        ({"order": "global"}, [0, 1]),
    ],
)
def test_selections_and_orders_work(store, caller, how, numbers):
    queue = make_filled(store, 4, each=1, shards=3)
    with caller.connected() as connection:
        firing = queue.within(connection).fire(2, **how)
        queue.within(connection).delete(firing)
        connection.commit()
    found = numbers_of(firing.messages)
    assert (sorted(found) if "selector" in how else found) == numbers
    assert queue.browse().num_rows == 2


def test_an_empty_firing_says_when_the_limit_admits_the_next_message(store, caller):
    queue = make_queue(store, limits=limit(per_second=0.1, window=10))
    queue.load(orders(2))
    with caller.connected() as connection:
        assert len(queue.within(connection).fire()) == 1
        assert queue.within(connection).fire().opens_in > 0


def test_the_next_message_of_a_group_follows_in_the_same_transaction(store, caller):
    queue = make_queue(store, group="customer")
    queue.load(orders(3, customers=1))
    with caller.connected() as connection:
        seen = []
        while len(firing := queue.within(connection).fire()):
            seen += numbers_of(firing.messages)
            queue.within(connection).delete(firing)
        connection.commit()
    assert seen == [0, 1, 2]


def test_connections_that_come_and_go_share_a_consumer(store, caller):
    queue = make_filled(store, 2)
    # The process remembers each life that it has begun, even of earlier stores at this place.
    before = len(consumers._own[store.catalog.engine.url])
    for finish in ("rollback", "commit", "rollback", "commit"):
        with caller.connected() as connection:
            within = queue.within(connection)
            assert within.delete(within.fire()) == 1
            getattr(connection, finish)()
        del connection, within
        gc.collect()

    assert queue.browse().num_rows == 0
    assert store.view("consumers").num_rows == 1
    assert len(consumers._own[store.catalog.engine.url]) == before + 1


@ONLY_POSTGRESQL  # SQLite has one writer
def test_two_transactions_of_a_process_fire_at_the_same_time(store, caller):
    queue = make_queue(store, shards=4)
    # The shards take turns.
    load_singly(queue, 8)
    with caller.connected() as one, caller.connected() as other:
        first = queue.within(one).fire(1)
        # Neither waits for the other, nor for the process's own consumer.
        second = queue.within(other).fire(1)
        third = queue.fire(1)
        queue.within(other).delete(second)
        other.commit()
        queue.within(one).delete(first)
        one.commit()
        queue.delete(third)
    assert len({*numbers_of(first.messages), *numbers_of(second.messages)}) == 2
    assert queue.browse().num_rows == 5


def test_threads_take_each_message_once(store, caller):
    queue = make_filled(store, 30, shards=4)

    def work():
        with caller.connected() as connection:
            end = time.monotonic() + PATIENCE
            while queue.browse().num_rows:
                assert time.monotonic() < end, "messages are left"
                try:
                    firing = queue.within(connection).fire(2)
                    for number in numbers_of(firing.messages):
                        caller.sell(connection, number)
                    if len(firing):
                        queue.within(connection).delete(firing)
                    connection.commit()
                except Conflict:
                    connection.rollback()

    all_at_once(*[work] * 3)

    assert caller.sold() == list(range(30))


def test_a_consumer_of_ones_own_may_fire(store, caller):
    queue = make_filled(store, 2)
    consumer = store.consumer("shop")
    with caller.connected() as connection:
        firing = queue.within(connection).fire(consumer=consumer)
        assert firing.ticket.consumer == consumer
        queue.within(connection).delete(firing.ids, consumer="shop")
        connection.commit()
    store.consumer("shop")
    with caller.connected() as connection, pytest.raises(ConsumerFenced):
        queue.within(connection).fire(consumer=consumer)


@pytest.mark.spoiled
def test_a_damaged_segment_fires_nothing(store, caller):
    queue = make_filled(store, 20_000)
    (name,) = store.storage.list()
    (Path(store.address.storage) / name).write_bytes(b"torn")
    with caller.connected() as connection:
        caller.sell(connection, 1)
        with pytest.raises(DamagedSegment):
            queue.within(connection).fire("all")
        connection.commit()
    assert caller.sold() == [1]
    (row,) = store.view("queues").to_pylist()
    assert row["in_flight"] == 0


def test_a_swept_message_is_not_settled_by_a_transaction(store, caller):
    queue = make_filled(store, 1)
    with caller.connected() as connection:
        firing = queue.within(connection).fire()
        connection.commit()
        assert queue.sweep(older_than=0) == 1
        caller.sell(connection, 0)
        with pytest.raises(Conflict, match="not held any more"):
            queue.within(connection).delete(firing)
        connection.rollback()
    assert caller.sold() == []
