"""Ring: a full queue drops its oldest waiting messages, and never messages in flight."""

from functools import partial

import pytest

from queue_core.errors import QueueFull
from tests.books import audit
from tests.dump import dump
from tests.factories import main, make_filled, make_queue, orders
from tests.waiting import all_at_once


def dropped(queue):
    return sum(queue.metadata().column("dropped").to_pylist())


@pytest.mark.parametrize("shards", [1, 3])
def test_the_newest_stay(store, shards):
    queue = make_filled(store, 12, each=1, shards=shards, max_size=5, overflow="ring")

    assert main(queue) == [7, 8, 9, 10, 11]
    assert dropped(queue) == 7
    queue.load(orders(4, 12))
    # A slice is cut where enough is dropped.
    queue.load(orders(2, 16))
    assert main(queue) == [13, 14, 15, 16, 17]


def test_the_oldest_are_dropped_whatever_shard_they_are_in(store):
    queue = make_queue(store, shards=2, key="customer", max_size=10, overflow="ring")
    queue.load([{"number": n, "customer": "customer-1"} for n in range(9)])
    queue.load([{"number": 9, "customer": "customer-2"}])
    queue.load([{"number": 10, "customer": "customer-1"}])
    assert main(queue) == list(range(1, 11))


def test_the_newest_messages_of_a_load_larger_than_the_ring_stay(store):
    queue = make_filled(store, 3, max_size=5, overflow="ring")
    ids = queue.load(orders(20, 100))
    assert queue.browse().column("_message_id").to_pylist() == ids[15:].to_pylist()
    assert dropped(queue) == 18


def test_each_shard_keeps_its_newest_messages_of_a_large_load_with_a_key(store):
    queue = make_filled(store, 400, shards=4, key="customer", max_size=40, overflow="ring")
    shards = {}
    for row in queue.browse().select(["_shard", "number"]).to_pylist():
        shards.setdefault(row["_shard"], []).append(row["number"])
    assert sum(map(len, shards.values())) == 40
    assert all(min(those) > 250 for those in shards.values())


def test_messages_in_flight_are_never_dropped(store):
    queue = make_filled(store, 5, max_size=5, overflow="ring")
    firing = queue.fire(3)

    queue.load(orders(2, 5))

    assert main(queue) == [0, 1, 2, 5, 6]
    before = dump(store)
    for count in (3, 50):
        with pytest.raises(QueueFull, match="3 messages in flight or damaged cannot"):
            queue.load(orders(count, 10))
    assert dump(store) == before
    # Those that come back are dropped by their old places.
    queue.reload(firing)
    queue.load(orders(1, 7))
    assert main(queue) == [1, 2, 5, 6, 7]


def test_a_ring_can_be_bounded_in_bytes(store):
    queue = make_filled(store, 1000, max_bytes=1 << 20, overflow="ring")
    (size,) = store.view("slices").column("bytes").to_pylist()
    queue.admin.change_settings(max_bytes=2 * size)

    for first in range(1000, 6000, 1000):
        queue.load(orders(1000, first))
        assert sum(store.view("slices").column("bytes").to_pylist()) <= 2 * size

    kept = main(queue)
    assert kept == list(range(6000 - len(kept), 6000))
    assert len(kept) > 1900


def test_concurrent_loads_and_firings_never_exceed_the_bound(store):
    make_queue(store, shards=2, max_size=20, overflow="ring")
    seen = []

    def load(start):
        mine = store.queue("orders")
        for number in range(start, start + 30):
            try:
                mine.load(orders(3, 3 * number))
            except QueueFull:
                # All messages were in flight just then.
                continue
            seen.append(mine.browse().num_rows)

    def fire():
        mine = store.queue("orders")
        for _ in range(30):
            mine.delete(mine.fire(4))

    all_at_once(partial(load, 0), partial(load, 100), fire, fire)

    assert seen
    assert max(seen) <= 20
    audit(store)
