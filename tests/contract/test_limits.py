"""Limits of messages per second and in flight, which all consumers of a queue share."""

import threading
import time

import pyarrow as pa
import pytest

from ignis_source.offset import Offset
from queue_core import ConsumerPool, ConsumerTarget, batch_handler, limit
from queue_core.catalog.holders.consumers import ConsumerRow
from queue_core.catalog.records import token_buckets
from queue_core.catalog.tables import token_buckets as rows
from queue_core.errors import BadOption
from queue_core.segments.reader import read_table
from queue_core.selection.request import Demand, FireRequest
from queue_core.selection.terms import terms_of
from queue_core.values.model import BY_SHARD, Magazine
from queue_core.verbs.fire import fire
from tests.books import audit
from tests.clocks import jump
from tests.contract.test_statements import transactions
from tests.factories import drop, make_filled, make_queue, numbers_of, orders
from tests.waiting import PATIENCE, Caller, all_at_once, look_at_once

#: A rate that gives no second message during a test.
SLOW = 0.001
SECOND = 1 / 86_400
START = Offset("reader", 0)


def ask(session, start):
    return session.next(start, None, None)


@pytest.mark.parametrize("order", ["shard", "global"])
def test_a_firing_takes_the_tokens_of_one_window(store, order):
    queue = make_filled(store, 30, shards=4, limits=limit(per_second=SLOW, window=10 / SLOW))

    assert len(queue.fire("all", order=order)) == 10
    refused = queue.fire(order=order)

    assert len(refused) == 0
    assert 0.9 / SLOW < refused.opens_in < 1.3 * 0.1 * 10 / SLOW
    jump(store, 3 * SECOND / SLOW)
    assert len(queue.fire("all", order=order)) == 3


@pytest.mark.each_catalog
def test_a_firing_that_waited_for_its_consumer_takes_its_tokens_too(store, monkeypatch):
    """PostgreSQL tells the time from before it waited for the row of the consumer."""
    late = int(3e6 / SLOW)
    monkeypatch.setattr(ConsumerRow, "now", lambda row, now=ConsumerRow.now: now(row) - late)
    queue = make_filled(store, 9, limits=limit(per_second=SLOW, window=3 / SLOW))

    assert sum(len(queue.fire(1)) for _ in range(9)) == 3


def test_a_firing_tells_nothing_of_an_earlier_one_with_the_same_request(store):
    queue = make_filled(store, 2, limits=limit(per_second=SLOW))
    terms = terms_of([queue.info], Magazine.MAIN, None, BY_SHARD)
    request, reader = FireRequest(queue_ids=(queue.info.id,), terms=terms), store.consumer()

    taken, refused = (fire(store.catalog, reader, request) for _ in range(2))
    queue.choose("all").delete()
    none_left = fire(store.catalog, reader, request)

    assert (taken.ticket.messages, taken.opens_in) == (1, None)
    assert (refused.ticket, refused.by_time) == (None, True)
    assert refused.opens_in > 0
    assert (none_left.ticket, none_left.opens_in, none_left.by_time) == (None, None, False)


@pytest.mark.parametrize("window", [1.0, 86_400.0])
def test_the_slowest_rate_has_a_view(store, window):
    queue = make_filled(store, 2, limits=limit(per_second=1 / (365 * 86_400), window=window))
    began = store.catalog.now()
    assert len(queue.fire("all")) == 1

    (row,) = store.view("limits").to_pylist()
    seconds = row["next_at"].timestamp() - began / 1e6
    assert 364 * 86_400 < seconds < 366 * 86_400

    with pytest.raises(BadOption, match="at least one in a year"):
        queue.admin.change_settings(limits=limit(per_second=1e-9))
    assert len(store.view("limits")) == 1


@pytest.mark.parametrize("selector", [None, "number >= 0"])
def test_no_more_messages_than_the_limit_are_in_flight(store, selector):
    queue = make_filled(store, 20, shards=3, limits=limit(in_flight=5))

    first = queue.fire(3, selector=selector)
    second = queue.fire(10, selector=selector)
    refused = queue.fire(selector=selector)

    assert (len(first), len(second), len(refused)) == (3, 2, 0)
    assert refused.opens_in is not None
    queue.delete(second)
    queue.sideline(first)
    assert len(queue.fire("all", selector=selector)) == 5
    # Limits count only in main.
    assert len(queue.fire("all", magazine="sideline")) == 3


def test_a_rate_in_order_of_priority_takes_the_first(store):
    queue = make_queue(
        store, shards=3, priority="amount", limits=limit(per_second=SLOW, window=4 / SLOW)
    )
    # A firing without messages takes no tokens.
    assert queue.fire().opens_in is None
    queue.load(orders(12))

    assert sorted(numbers_of(queue.fire(10).messages)) == [8, 9, 10, 11]


def test_a_blocking_fire_waits_for_tokens_and_for_a_settlement(store):
    queue = make_filled(store, 5, limits=limit(per_second=10, window=0.1))
    queue.fire()
    began = time.monotonic()
    firing = queue.fire(timeout=PATIENCE)
    assert len(firing) == 1
    assert time.monotonic() - began < PATIENCE / 2
    queue.admin.change_settings(limits=limit(in_flight=2))

    timer = threading.Timer(0.2, lambda: queue.delete(firing))
    timer.start()
    assert len(queue.fire(timeout=PATIENCE)) == 1
    timer.join()


def test_a_blocking_fire_that_waits_for_tokens_sleeps(store):
    queue = make_filled(store, 2, limits=limit(per_second=SLOW))
    queue.fire()
    with transactions(store) as begun:
        assert len(queue.fire(timeout=1.0)) == 0
    # Two looks at the beginning, and one at the end.
    assert len(begun) <= 9


@pytest.mark.parametrize("selector", [None, "number >= 0"])
def test_a_waiting_fire_keeps_limits_that_are_set_meanwhile(store, selector):
    queue = make_queue(store)
    waiting = Caller(lambda: store.queue("orders").fire("all", selector=selector, timeout=PATIENCE))
    time.sleep(0.3)
    queue.admin.change_settings(limits=limit(per_second=SLOW, window=3 / SLOW))
    queue.load(orders(100))

    assert len(waiting.done()) == 3
    assert [row["tokens"] for row in store.view("limits").to_pylist()] == [0]


def test_a_waiting_fire_follows_turns_that_are_set_meanwhile(store):
    queue = make_queue(store)
    waiting = Caller(lambda: store.queue("orders").fire(2, timeout=PATIENCE))
    time.sleep(0.3)
    queue.admin.change_settings(fair_by="customer")
    queue.load(pa.concat_tables([orders(10, customers=1), orders(10, 10, customers=20)]))
    assert len(set(waiting.done().messages.column("customer").to_pylist())) == 2


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        (limit(per_second=SLOW), limit(per_second=1000), 1),
        (limit(per_second=SLOW), None, 9),
        (limit(in_flight=1), limit(in_flight=4), 3),
        (limit(in_flight=1), None, 9),
        (limit("customer", in_flight=1), None, 9),
    ],
    ids=str,
)
def test_a_waiting_fire_goes_on_when_limits_are_raised_or_removed(store, before, after, count):
    queue = make_queue(store, limits=before)
    queue.load(orders(10, customers=1))
    assert len(queue.fire("all")) == 1
    waiting = Caller(lambda: store.queue("orders").fire("all", timeout=PATIENCE))
    time.sleep(0.3)
    queue.admin.change_settings(limits=after)

    assert len(waiting.done()) >= count


def test_threads_have_no_more_messages_in_flight_than_the_limit(store):
    queue = make_filled(store, 40, shards=4, limits=limit(in_flight=3))
    taken = []

    def work():
        while len(taken) < 40:
            firing = queue.fire(2)
            in_flight = store.view("queues").column("in_flight").to_pylist()[0]
            assert in_flight <= 3
            taken.extend(firing.ids.to_pylist())
            queue.delete(firing)

    all_at_once(*[work] * 4)

    assert len(taken) == len(set(taken)) == 40


def test_a_pool_keeps_a_rate_and_drains(store):
    make_filled(store, 40, shards=2, limits=limit(per_second=50, window=0.2))
    calls = []

    @batch_handler
    def handler(batch):
        calls.extend([time.monotonic()] * batch.num_rows)
        return [True] * batch.num_rows

    began = time.monotonic()
    with ConsumerPool(store, "orders", handler, concurrency=3, batch=4) as pool:
        assert pool.drain(PATIENCE)

    assert len(calls) == 40
    # The tokens of one window, and then fifty a second.
    for number, at in enumerate(sorted(calls), 1):
        assert number <= 10 + (at - began) * 50 + 0.5


def test_a_pool_that_waits_for_tokens_sleeps(store):
    make_filled(store, 5, limits=limit(per_second=SLOW))
    handled = threading.Event()

    with ConsumerPool(store, "orders", lambda _: handled.set() or True, concurrency=2, tasks=()):
        assert handled.wait(PATIENCE)
        time.sleep(0.7)
        start = time.monotonic()
        with transactions(store) as begun:
            time.sleep(1.2)
        seconds = time.monotonic() - start
    # A look a second, heartbeats, and the settings of the queue.
    assert len(begun) <= 10 * seconds


def test_a_target_is_woken_when_there_are_tokens(store):
    make_filled(store, 7, limits=limit(per_second=5))
    woken, pulled = threading.Event(), []

    with ConsumerTarget(store, "orders", woken.set) as target:
        end = time.monotonic() + PATIENCE
        while len(pulled) < 7 and time.monotonic() < end:
            assert woken.wait(PATIENCE)
            woken.clear()
            for consumer in target.ready():
                while (firing := consumer.pull(10)) is not None:
                    pulled.extend(numbers_of(firing.messages))
        target.stop()

    assert sorted(pulled) == list(range(7))


def test_a_query_takes_only_as_many_messages_as_the_limit_allows(store, session):
    make_filled(store, 20, shards=3, limits=limit(per_second=SLOW, window=6 / SLOW))
    query = session()

    offset = ask(query, START)
    assert len(query.plan(START, offset)) == 6
    assert ask(query, offset) == offset
    jump(store, 2 * SECOND / SLOW)
    look_at_once(query)
    after = ask(query, offset)
    assert len(query.plan(offset, after)) == 2


def test_a_run_to_the_end_waits_for_tokens(store, session):
    make_filled(store, 12, limits=limit(per_second=10, window=0.5))
    query = session()
    query.set_horizon()

    offset, counts = START, []
    while (after := ask(query, offset)) != offset:
        counts.append(len(query.plan(offset, after)))
        query.acknowledge(after)
        offset = after

    assert sum(counts) == 12
    assert max(counts) <= 5


def test_limits_of_one_of_two_queues(store, session):
    limited = make_queue(store, shards=2, limits=limit(per_second=SLOW, window=3 / SLOW))
    other = make_queue(store, "others", shards=2)
    limited.load(orders(20))
    other.load(orders(20, 100))
    query = session(queues="orders,others")

    offset = ask(query, START)
    assert len(query.plan(START, offset)) == 23
    other.load(orders(2, 200))
    after = ask(query, offset)
    assert len(query.plan(offset, after)) == 2


@pytest.mark.parametrize("most", [None, 30])
@pytest.mark.parametrize(
    ("settings", "options"), [({"priority": "amount"}, {}), ({}, {"orderBy": "number DESC"})]
)
def test_a_limit_of_one_of_two_queues_leaves_the_last_by_the_order(
    store, session, settings, options, most
):
    limited = make_queue(store, shards=2, limits=limit(in_flight=2), **settings)
    make_queue(store, "others", **settings).load(orders(5, 100))
    limited.load(orders(20))
    query = session(queues="orders,others", **options)

    offset = query.next(START, most, None)

    fired = numbers_of(read_table(query.plan(START, offset)))
    assert sorted(fired) == [18, 19, *range(100, 105)]


@pytest.mark.each_catalog
def test_a_limit_cuts_what_one_of_two_queues_has_in_its_log(store):
    make_filled(store, 6, "topic", each=1, log="1 day")
    reader = store.subscribe("reader", to="topic", start="earliest", limits=limit(in_flight=3))
    other = make_filled(store, 4, "other")
    queues = (reader.info, other.info)
    request = Demand().request(queues, None, store.storage.uri)

    fired = fire(store.catalog, store.consumer(), request)

    got = read_table(fired.plan).to_pylist()
    assert [row["number"] for row in got if row["_queue"] == "reader"] == [0, 1, 2]
    assert len(got) == 7
    audit(store)


def test_a_dropped_queue_leaves_no_bucket(store):
    queue = make_filled(store, 1, limits=limit(per_second=10))
    queue.delete(queue.fire())
    with store.catalog.read() as connection:
        assert (
            token_buckets.read(connection, token_buckets.BucketKey(queue.info.id)).spent_until
            is not None
        )

    drop(queue)

    with store.catalog.read() as connection:
        assert connection.execute(rows.select()).all() == []
