"""`order="global"`: first in, first out over all shards."""

import pytest

from queue_core import ConsumerPool
from queue_core.catalog.slices import rewritable
from queue_core.errors import BadOption
from tests.contract.pools import Recorder
from tests.dump import dump, load_together
from tests.factories import load_singly, make_filled, make_queue, numbers_of, orders
from tests.waiting import PATIENCE


@pytest.fixture
def queue(store):
    """A queue of eight shards, whose single loads go to one shard after another."""
    return make_queue(store, shards=8)


def fired(queue, count=None, **wanted):
    return numbers_of(queue.fire(count, order="global", **wanted).messages)


def test_single_loads_come_in_the_order_in_which_they_were_loaded(queue):
    load_singly(queue, 30)
    assert len({*queue.browse().column("_shard").to_pylist()}) == 8

    assert numbers_of(queue.peek(9, order="global")) == list(range(9))
    assert fired(queue, 9) == list(range(9))
    assert fired(queue) == [9]
    assert fired(queue, selector="number > 11") == [12]
    assert fired(queue, selector="number > 99", fallback=True) == [10]
    assert fired(queue, max_bytes=1) == [11]
    assert fired(queue, 5, max_bytes=10**6) == [13, 14, 15, 16, 17]
    assert fired(queue, "all") == list(range(18, 30))
    assert fired(queue, "all") == []


def test_compacted_messages_keep_their_order(queue, monkeypatch):
    monkeypatch.setattr(rewritable, "NEIGHBOURS", 8)
    load_singly(queue, 80)
    assert queue.admin.compact() == 80
    assert fired(queue, 3) == [0, 1, 2]
    assert fired(queue, 50) == list(range(3, 53))
    assert fired(queue, "all") == list(range(53, 80))


def test_messages_of_one_load_come_shard_by_shard(store):
    queue = make_queue(store, shards=4, key="customer")
    queue.load(orders(40))
    queue.load(orders(40, 40))
    for begin in (0, 40):
        messages = queue.fire(40, order="global").messages
        assert sorted(numbers_of(messages)) == list(range(begin, begin + 40))
        shards = messages.column("_shard").to_pylist()
        assert shards == sorted(shards)
        assert len({*shards}) > 1


def test_each_shard_keeps_its_order(store):
    """A shovelled message waits at the tail of its shard, and comes right after the others."""
    one, many = make_queue(store), make_queue(store, "many", shards=2)
    for queue in (one, many):
        load_singly(queue, 6)
        queue.sideline(queue.fire(1, selector="number = 0"))
        queue.shovel()

    assert fired(one, "all") == numbers_of(one.browse()) == [1, 2, 3, 4, 5, 0]
    numbers = fired(many, "all")
    shards = dict(zip(numbers_of(many.browse()), many.browse()["_shard"].to_pylist(), strict=True))
    behind = [number for number in numbers if shards[number] == shards[0]]
    assert behind[-1] == 0
    assert [number for number in numbers if number] == [1, 2, 3, 4, 5]


def test_kept_messages_come_again_in_that_order(queue):
    load_singly(queue, 6)
    assert numbers_of(queue.get_and_keep(3, order="global").messages) == [0, 1, 2]
    assert queue.reset() == 3
    assert numbers_of(queue.get_and_keep("all", order="global").messages) == list(range(6))


def test_a_priority_goes_before_the_time_of_loading(store):
    queue = make_queue(store, shards=8, priority="amount")
    for number, amount in enumerate((1.0, 2.0, 1.0, 2.0, None, 2.0)):
        queue.load([{"number": number, "customer": None, "amount": amount}])
    assert fired(queue, 2) == [1, 3]
    assert fired(queue, "all") == [5, 0, 2, 4]


def test_loads_of_one_moment_and_priority_come_one_after_another(store):
    """A clock that counts milliseconds may not tell two loads apart."""
    queue = make_queue(store, shards=8, priority="amount")
    for number in range(20):
        queue.load([{"number": number, "customer": None, "amount": 2.0}])
    load_together(store)
    assert fired(queue, 13) == list(range(13))
    assert fired(queue, "all") == list(range(13, 20))


def test_heads_of_groups_come_oldest_first(store):
    queue = make_filled(store, 20, each=1, shards=8, key="customer", group="customer")
    firing = queue.fire(6, order="global")
    assert numbers_of(firing.messages) == list(range(6))
    queue.delete(firing)
    assert fired(queue, 100) == list(range(6, 16))


def test_a_pool_with_one_worker_handles_messages_in_that_order(store, queue):
    load_singly(queue, 16)
    recorder = Recorder()
    how = {"concurrency": 1, "batch": 4, "tasks": []}

    with ConsumerPool(store, "orders", recorder, order="global", **how) as pool:
        assert pool.drain(PATIENCE)
        load_singly(queue, 4, 16)
        assert pool.drain(PATIENCE)

    assert [message["number"] for message in recorder.messages] == list(range(20))


@pytest.mark.parametrize(
    ("queues", "wanted", "fault"),
    [
        (["orders"], {"order": "newest"}, "order='newest': use 'shard' or 'global'"),
        (["orders"], {"order": None}, "order=None: use"),
        (["orders"], {"order": "global", "order_by": "number"}, "already spans all shards"),
        (["orders"], {"order": "global", "browse": True}, "shard by shard"),
        (["orders", "other"], {"order": "global"}, r"several queues \(orders, other\)"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused_and_takes_nothing(
    store, queue, queues, wanted, fault
):
    make_queue(store, "other")
    load_singly(queue, 2)
    before = dump(store)
    with pytest.raises(BadOption, match=fault):
        ConsumerPool(store, queues, Recorder(), **wanted)
    if len(queues) == 1 and "browse" not in wanted:
        for look in (queue.fire, queue.peek):
            with pytest.raises(BadOption, match=fault):
                look(**wanted)
    assert dump(store) == before
