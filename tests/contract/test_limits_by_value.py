"""Limits of each value of a column."""

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

from ignis_source.offset import Offset
from queue_core import ConsumerPool, limit
from queue_core.catalog.records import token_buckets
from queue_core.errors import BadOption
from queue_core.segments import reader
from queue_core.selection import by_value
from tests.clocks import jump
from tests.command_line import answer
from tests.factories import ORDERS, make_filled, make_queue, numbers_of, orders
from tests.waiting import PATIENCE

#: A rate that gives no second message during a test.
SLOW = 0.001
SECOND = 1 / 86_400
START = Offset("reader", 0)


def of(*customers, first=0):
    """Messages of these customers."""
    numbers = range(first, first + len(customers))
    rows = {"number": numbers, "customer": customers, "amount": [float(n) for n in numbers]}
    return pa.table({name: list(column) for name, column in rows.items()}, schema=ORDERS)


def by_customer(firing):
    return Counter(firing.messages.column("customer").to_pylist())


@pytest.mark.parametrize(
    "settings", [{}, {"priority": "amount"}, {"key": "number", "group": "number"}], ids=str
)
@pytest.mark.parametrize("order", ["shard", "global"])
@pytest.mark.parametrize("bytes", [{}, {"max_bytes": 1 << 20}], ids=str)
def test_each_value_has_its_own_messages_in_flight(store, order, settings, bytes):
    queue = make_queue(store, shards=3, limits=limit("customer", in_flight=2), **settings)
    queue.load(of(*["a"] * 40, *["b", None] * 5, "c"))

    first = queue.fire(20, order=order, **bytes)
    second = queue.fire(20, order=order, **bytes)

    assert by_customer(first) == {"a": 2, "b": 2, None: 2, "c": 1}
    assert len(second) == 0
    assert second.opens_in is not None
    of_b = [
        n
        for n, c in zip(first.ids.to_pylist(), first.messages["customer"].to_pylist(), strict=True)
        if c == "b"
    ]
    queue.delete(of_b[:1])
    assert by_customer(queue.fire(20, order=order)) == {"b": 1}


def test_each_value_has_its_own_rate(store):
    queue = make_queue(store, shards=2, limits=limit("customer", per_second=SLOW, window=3 / SLOW))
    queue.load(of(*["a", "b"] * 10, "c"))

    assert by_customer(queue.fire("all")) == {"a": 3, "b": 3, "c": 1}
    refused = queue.fire("all")
    assert len(refused) == 0
    assert 0.9 / SLOW < refused.opens_in < 1.3 / SLOW
    jump(store, SECOND / SLOW)
    assert by_customer(queue.fire(1)).total() == 1
    assert by_customer(queue.fire(20)).total() == 1
    assert len(queue.fire(20)) == 0


@pytest.mark.parametrize(
    ("settings", "how"), [({"priority": "amount"}, {}), ({}, {"order": "global"})], ids=str
)
def test_long_values_without_room_keep_no_others_back(store, settings, how):
    """Their keys are hashes, so that a search does not know them before it has read them."""
    queue = make_queue(store, limits=limit("customer", per_second=SLOW), **settings)
    long = [f"{number:0400}" for number in range(by_value.ROUNDS + 1)]
    queue.load(of(*long))
    assert len(queue.fire("all")) == len(long)
    queue.load(of(*long, first=100))
    queue.load(of("a", "a", "b"))

    fired = by_customer(queue.fire(1, **how)) + by_customer(queue.fire(1, **how))
    assert fired == {"a": 1, "b": 1}
    assert len(queue.fire(1, **how)) == 0


def test_the_oldest_messages_of_a_value_come_first(store):
    queue = make_queue(store, limits=limit("customer", in_flight=3))
    queue.load(of(*["a"] * 30, *["b"] * 30))
    assert numbers_of(queue.fire(5).messages) == [0, 1, 2, 30, 31]
    assert numbers_of(queue.fire(5).messages) == [32]


def test_limits_of_values_and_of_the_whole_queue(store):
    limits = [limit("customer", in_flight=3), limit(in_flight=5), limit("number", per_second=SLOW)]
    queue = make_queue(store, shards=2, limits=limits)
    queue.load(of(*["a"] * 10, *["b"] * 10))

    firing = queue.fire("all")
    assert by_customer(firing).total() == 5
    assert max(by_customer(firing).values()) == 3
    # The rate of each number is used up.
    queue.reload(firing)
    again = queue.fire("all")
    assert not set(numbers_of(again.messages)) & set(numbers_of(firing.messages))


def test_a_group_keeps_its_order_while_a_value_waits(store):
    queue = make_queue(store, key="number", group="number", limits=limit("customer", in_flight=1))
    rows = pa.table(
        {"number": [1, 2, 2], "customer": ["a", "a", "b"], "amount": [0.0, 1.0, 2.0]}, schema=ORDERS
    )
    queue.load(rows)

    firing = queue.fire("all")
    assert firing.messages.column("amount").to_pylist() == [0.0]
    assert len(queue.fire("all")) == 0
    queue.delete(firing)
    assert queue.fire("all").messages.column("amount").to_pylist() == [1.0]


def test_what_one_limit_refuses_takes_no_room_of_another(store):
    limits = [limit("customer", in_flight=1), limit("number", in_flight=1)]
    queue = make_queue(store, limits=limits)
    rows = {"number": [1, 2, 2], "customer": ["a", "a", "b"], "amount": [0.0, 1.0, 2.0]}
    queue.load(pa.table(rows, schema=ORDERS))

    assert queue.fire("all").messages.column("amount").to_pylist() == [0.0, 2.0]


def test_slices_of_closed_values_are_not_read(store, monkeypatch):
    queue = make_queue(store, limits=limit("customer", in_flight=1))
    for first in range(0, 2000, 500):
        queue.load(of(*["a"] * 500, first=first))
    queue.load(of("b", "a", "c", first=5000))
    assert numbers_of(queue.fire(1).messages) == [0]
    read = []
    whole = reader.read_columns

    def counted(plan, columns):
        read.append(len(plan))
        return whole(plan, columns)

    monkeypatch.setattr("queue_core.selection.scan.read_columns", counted)
    assert numbers_of(queue.fire(10).messages) == [5000, 5002]
    assert sum(read) < 20


@pytest.mark.each_catalog
def test_messages_that_are_settled_while_they_are_counted_are_no_damage(store, monkeypatch):
    """On PostgreSQL, others may settle them between two statements of the firing."""
    queue = make_queue(store, limits=limit("customer", in_flight=5))
    for first in (0, 2, 4):
        queue.load(of("a", "b", first=first))
    firings = [queue.fire(2), queue.fire(2)]
    if store.catalog.file is not None:
        # Only while the firing searches: then it has the database.
        firings.pop()
    fetch = by_value.fetch

    def then_settle(connection, *where, **how):
        found = fetch(connection, *where, **how)
        if firings and not how:
            queue.delete(firings.pop())
        return found

    monkeypatch.setattr(by_value, "fetch", then_settle)
    assert numbers_of(queue.fire(2).messages) == [4, 5]
    assert firings == []


def test_buckets_that_are_full_again_are_removed(store, monkeypatch):
    monkeypatch.setattr(token_buckets, "FORGETS", 2)
    queue = make_filled(store, 20, limits=limit("number", per_second=1000, window=0.001))
    queue.fire(19)
    jump(store, SECOND)

    queue.fire("all")

    with store.catalog.read() as connection:
        assert len(token_buckets.of_values(connection, queue.info.id, "number")) == 1


def test_a_long_value_has_a_limit_too(store):
    queue = make_queue(store, limits=limit("customer", per_second=SLOW))
    queue.load(of(*["long" * 500] * 3, *["long" * 400 + "er"] * 3))
    assert len(queue.fire("all")) == 2
    refused = queue.fire("all")
    assert len(refused) == 0
    assert refused.opens_in > 0.9 / SLOW


@pytest.mark.parametrize("customer", ["a", "long" * 500])
def test_a_value_without_messages_that_may_be_taken_refuses_none(store, customer):
    queue = make_queue(store, limits=limit("customer", per_second=SLOW))
    queue.load(of(customer, "b"))
    assert numbers_of(queue.fire().messages) == [0]

    assert queue.fire(selector="number > 1").opens_in is None

    queue.load(of(customer, first=2))
    assert queue.fire(selector="number > 1").opens_in > 0.9 / SLOW
    with ConsumerPool(store, "orders", lambda order: True, selector="number < 2") as pool:
        assert pool.drain(PATIENCE)
    assert numbers_of(queue.browse()) == [0, 2]


def test_the_view_shows_what_limits_allow(store, ignis):
    whole = limit(in_flight=9, per_second=SLOW, window=4 / SLOW)
    each = limit("customer", in_flight=3, per_second=SLOW, window=2 / SLOW)
    flying = limit("amount_in_cents", in_flight=2)
    schema = pa.schema([*ORDERS, ("amount_in_cents", pa.int64())])
    queue = make_queue(store, schema=schema, limits=[whole, each, flying])
    make_queue(store, "others", limits=limit("customer", in_flight=1))
    queue.load(of("a", "b", "b").append_column("amount_in_cents", pa.array([5, 5, None])))
    assert [row["tokens"] for row in store.view("limits").to_pylist()] == [4]

    queue.delete(queue.fire("all", selector="number = 1"))
    firing = queue.fire("all")

    shown = answer(ignis("--json", "limits", "orders"))
    assert [(row["limit"], row["value"], row["in_flight"], row["tokens"]) for row in shown] == [
        (str(whole), None, 2, 1),
        (str(each), "a", 1, 1),
        (str(each), "b", 1, 0),
        (str(flying), 5, 1, None),
        (str(flying), None, 1, None),
    ]
    assert [row["next_at"] is None for row in shown] == [True, True, False, True, True]
    queue.delete(firing)
    left = {row["value"]: row["in_flight"] for row in store.view("limits").to_pylist()}
    assert left == {None: 0, '"a"': 0, '"b"': 0}


@pytest.mark.parametrize(
    ("column", "told"), [("custmer", "no column 'custmer'"), ("amount", "is double")]
)
def test_other_columns_are_refused(store, column, told):
    with pytest.raises(BadOption, match=told):
        make_queue(store, limits=limit(column, in_flight=1))
    queue = make_queue(store)
    with pytest.raises(BadOption, match=told):
        queue.admin.change_settings(limits=limit(column, in_flight=1))


def test_a_pool_has_one_message_of_each_value_in_flight(store):
    queue = make_queue(store, shards=2, limits=limit("customer", in_flight=1))
    queue.load(orders(24, customers=3))
    busy, lock, most = Counter(), threading.Lock(), Counter()

    def handler(message):
        customer = message["customer"]
        with lock:
            busy[customer] += 1
            most[customer] = max(busy[customer], most[customer])
        time.sleep(0.005)
        with lock:
            busy[customer] -= 1
        return True

    with ConsumerPool(store, "orders", handler, concurrency=4) as pool:
        assert pool.drain(PATIENCE)

    assert set(most.values()) == {1}
    assert pool.counts["deleted"] == 24


def test_a_query_keeps_limits_of_values(store, session):
    queue = make_queue(store, shards=2, limits=limit("customer", in_flight=2))
    queue.load(of(*["a"] * 20, *["b"] * 3))
    query = session()

    offset = query.next(START, None, None)
    assert len(query.plan(START, offset)) == 4
    assert query.next(offset, None, None) == offset
    query.acknowledge(offset)
    after = query.next(offset, None, None)
    assert len(query.plan(offset, after)) == 3


@pytest.mark.parametrize("count", [3, None], ids=str)
@pytest.mark.parametrize("bytes", [{}, {"max_bytes": 1 << 20}], ids=str)
@pytest.mark.parametrize(
    ("settings", "order"),
    [({}, {"order_by": "amount DESC"}), ({"priority": "amount"}, {})],
    ids=["order_by", "priority"],
)
def test_of_each_value_the_first_by_an_order_are_taken(store, count, bytes, settings, order):
    queue = make_queue(store, limits=limit("customer", in_flight=1), **settings)
    queue.load(of(*["a"] * 5, *["b"] * 5, *["c"] * 5))
    taken = queue.fire(count or "all", **bytes, **order).messages
    assert numbers_of(taken) == [14, 9, 4]


def test_no_value_with_little_room_overtakes_older_messages(store):
    queue = make_queue(store, key="number", group="number", limits=limit("customer", in_flight=2))
    queue.load(of("a", *["b"] * 5))
    assert numbers_of(queue.fire(1).messages) == [0]


def test_a_limit_of_bytes_leaves_the_last_by_the_order(store):
    queue = make_queue(store, priority="amount", limits=limit("customer", in_flight=1))
    queue.load(of(*"fe", *"dd", *"aa", *"bb", "c"))
    size = store.view("slices").column("bytes").to_pylist()[0] / 9
    firing = queue.fire(9, max_bytes=int(3.5 * size))
    assert numbers_of(firing.messages) == [8, 7, 5]
