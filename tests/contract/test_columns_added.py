"""Columns are added while consumers run: no value of a message that is deleted may be left out."""

import threading

import pyarrow as pa
import pytest

from ignis_source.offset import Offset
from queue_core import ConsumerPool, ConsumerTarget, batch_handler
from queue_core.catalog.holders import interests
from queue_core.catalog.slices.rewritable import NEIGHBOURS
from queue_core.errors import SchemaMismatch
from queue_core.segments.reader import read_table
from tests.books import audit
from tests.contract.callers import Seller
from tests.contract.pools import Recorder
from tests.factories import load_singly, make_filled, make_queue, orders
from tests.waiting import Caller, until, waits

START = Offset("reader", 0)
EXTRA = pa.schema([("extra", pa.string())])
MORE = pa.schema([("more", pa.int64())])


@pytest.fixture
def grow(store):
    """Another process that adds columns, and loads messages with values in them."""

    def grow(name, numbers, **values):
        columns = pa.schema([(key, pa.scalar(value).type) for key, value in values.items()])
        other = store.queue(name)
        other.admin.add_columns(columns)
        other.load([{"number": number, **values} for number in numbers])

    return grow


def values(table, *names):
    """The orders of a table, with some columns."""
    return sorted(tuple(row[name] for name in ("number", *names)) for row in table.to_pylist())


@pytest.mark.parametrize("name", ["fire", "peek", "browse", "browse_sideline", "keep", "within"])
def test_a_queue_opened_before_reads_the_new_columns(store, grow, name):
    make_queue(store, "other").load(orders(1))
    stale = make_filled(store, 2)
    grow("orders", [2], extra="x")
    grow("orders", [3], extra="y", more=7)
    if name == "browse_sideline":
        store.queue("orders").sideline(store.queue("orders").fire("all"))

    def within():
        with Seller(store) as caller, caller.connected() as connection:
            return stale.within(connection).fire("all").messages

    found = {
        "fire": lambda: stale.fire("all").messages,
        "peek": lambda: stale.peek(10),
        "browse": stale.browse,
        "browse_sideline": lambda: stale.browse(magazine="sideline"),
        "keep": lambda: stale.get_and_keep("all").messages,
        "within": within,
    }[name]()

    expected = [(0, None, None), (1, None, None), (2, "x", None), (3, "y", 7)]
    assert values(found, "extra", "more") == expected
    assert stale.schema.names == store.queue("orders").schema.names
    assert store.queue("other").fire().messages.num_rows == 1


@pytest.mark.parametrize("slices", [1, 100])
def test_columns_that_are_added_within_a_firing_are_read(store, grow, monkeypatch, slices):
    queue = make_queue(store)
    queue.load(orders(1, slices))
    opens = interests.open_to

    def then_grow(*args, **how):
        found = opens(*args, **how)
        monkeypatch.setattr(interests, "open_to", opens)
        for number in range(slices):
            grow("orders", [number], extra="x")
        return found

    # The firing has seen the queue, and has not begun to write.
    monkeypatch.setattr(interests, "open_to", then_grow)

    found = queue.fire("all").messages

    expected = [*((number, "x") for number in range(slices)), (slices, None)]
    assert values(found, "extra") == expected


def test_a_firing_that_waits_reads_columns_that_are_added_meanwhile(store, grow):
    queue = make_queue(store)
    waiting = Caller(lambda: queue.fire("all", timeout=60).messages)
    waits(store, 1, "fire")
    grow("orders", [0], extra="x")

    assert values(waiting.done(), "extra") == [(0, "x")]


@pytest.mark.parametrize("rows", ["dicts", "table", "generator", "reader"])
def test_a_queue_opened_before_loads_the_new_columns(store, rows):
    stale = make_queue(store)
    store.queue("orders").admin.add_columns(EXTRA)
    store.queue("orders").admin.add_columns(MORE)
    table = orders(2).append_column("extra", pa.array(["x", "y"]))
    given = {
        "dicts": table.to_pylist(),
        "table": table,
        "generator": (row for row in table.to_pylist()),
        "reader": pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
    }[rows]

    stale.load(given)

    assert values(stale.fire("all").messages, "extra", "more") == [(0, "x", None), (1, "y", None)]
    with pytest.raises(SchemaMismatch, match="no column 'extr'; did you mean 'extra'"):
        stale.load([{"number": 1, "extr": "x"}])


@pytest.mark.parametrize("how", ["row", "batch", "transactional", "prefetched", "browse"])
def test_a_running_pool_goes_on_with_the_new_columns(store, grow, how):
    names = ["red", "blue", "green"]
    for name in names:
        make_queue(store, name).load(orders(3))
    seen = Recorder()
    lock = threading.Lock()

    @batch_handler
    def batch(rows):
        with lock:
            seen.messages.extend(rows.to_pylist())
        return pa.table(
            {"_message_id": rows.column("_message_id"), "outcome": ["delete"] * len(rows)}
        )

    def transactional(message, connection):
        return seen(message)

    handler = {"batch": batch, "transactional": transactional}.get(how, seen)
    options = {how: True} if how in ("transactional", "browse") else {}
    options |= {"batch": 2} if how == "prefetched" else {}
    with ConsumerPool(store, names, handler, tasks=(), **options) as pool:
        until(lambda: len(seen.messages) == 9)
        grow("blue", range(10, 40), extra="x")
        until(lambda: len(seen.messages) == 39)
        grow("blue", range(40, 60), extra="y", more=7)
        grow("green", range(60, 80), extra="z")
        store.queue("red").load(orders(1, 80))
        until(lambda: len(seen.messages) == 80)
        assert pool.drain(60)

    found = {
        (row["_queue"], row["number"], row.get("extra"), row.get("more")) for row in seen.messages
    }
    assert found == {
        *((name, number, None, None) for name in names for number in range(3)),
        *(("blue", number, "x", None) for number in range(10, 40)),
        *(("blue", number, "y", 7) for number in range(40, 60)),
        *(("green", number, "z", None) for number in range(60, 80)),
        ("red", 80, None, None),
    }
    audit(store)


def test_a_pool_whose_user_chose_columns_goes_on_with_these(store, grow):
    make_queue(store).load(orders(1))
    seen = Recorder()
    with ConsumerPool(store, "orders", seen, columns=["number"], tasks=()) as pool:
        until(lambda: seen.messages)
        grow("orders", [1], extra="x")
        until(lambda: len(seen.messages) == 2)
        assert pool.drain(60)
    assert [sorted(message) for message in seen.messages] == [["_message_id", "number"]] * 2


@pytest.mark.parametrize("browse", [False, True])
def test_a_target_pulls_the_new_columns(store, grow, browse):
    for name in ("red", "blue"):
        make_queue(store, name)
    with ConsumerTarget(store, ["red", "blue"], lambda: None, browse=browse) as target:
        red, blue = target.consumers
        assert red.pull(9) is None
        grow("blue", [1], extra="x")
        grow("red", [2], extra="y", more=7)
        firing = red.pull(9)
        assert values(firing.messages, "extra", "more") == [(2, "y", 7)]
        assert values(blue.pull(9).messages, "extra") == [(1, "x")]


def test_messages_that_are_redriven_keep_the_new_columns(store, grow):
    stale, target = make_queue(store), make_queue(store, "target")
    grow("orders", [1, 2], extra="x")
    store.queue("orders").sideline(store.queue("orders").fire("all"))

    with pytest.raises(SchemaMismatch, match="queue 'target' has no column 'extra'"):
        stale.shovel(to="target")
    store.queue("target").admin.add_columns(EXTRA)
    stale.shovel(to="target")

    assert values(target.fire("all").messages, "extra") == [(1, "x"), (2, "x")]


def test_a_policy_that_rewrites_queued_messages_keeps_the_new_columns(store, grow):
    stale = make_queue(store, key="customer")
    grow("orders", [1], extra="x", customer="a", amount=1.0)

    stale.load([{"number": 2, "customer": "a", "amount": 2.0}], policy="merge(sum(amount))")

    assert values(stale.fire("all").messages, "amount", "extra") == [(1, 3.0, "x")]


def test_a_policy_of_a_queue_opened_before_compares_the_new_columns(store, grow):
    stale = make_queue(store, policy="drop_duplicates")
    grow("orders", [1], extra="x")

    ids = stale.load([{"number": 1}, {"number": 1}])

    assert ids.is_null().to_pylist() == [False, True]
    assert stale.browse().column("extra").to_pylist() == ["x", None]


def test_a_query_fails_before_it_hands_on_a_batch_without_the_new_columns(store, session, grow):
    for name in ("red", "blue"):
        make_queue(store, name).load(orders(2))
    options = {"queues": "red,blue", "all_columns": True}
    query = session(**options)
    first = query.next(START, None, None)
    # Messages from before have no values in the new columns.
    store.queue("blue").admin.add_columns(EXTRA)
    assert len(query.plan(START, first)) == 4

    grow("blue", [10], extra="x")
    grow("blue", [11], extra="y", more=7)
    query.acknowledge(first)
    end = query.next(first, None, None)
    for _ in range(3):
        with pytest.raises(
            SchemaMismatch, match="'blue' has the new column 'extra', 'more', which"
        ):
            query.plan(first, end)

    for columns in (EXTRA, MORE):
        store.queue("red").admin.add_columns(columns)
    again = session(**options)
    assert again.next(first, None, None) == end
    found = read_table(again.plan(first, end))
    assert values(found, "extra", "more") == [(10, "x", None), (11, "y", 7)]
    # It was never handed on, so no delivery is counted.
    (deliveries,) = set(store.view("slices").column("deliveries").to_pylist())
    assert deliveries == 1
    again.acknowledge(end)
    assert store.view("slices").num_rows == 0
    audit(store)


def test_a_query_whose_user_chose_columns_goes_on(store, session, grow):
    for name in ("red", "blue"):
        make_queue(store, name).load(orders(1))
    query = session(queues="red,blue")
    grow("red", [10], extra="x")
    grow("blue", [11], extra="y")
    end = query.next(START, None, None)

    found = read_table(query.plan(START, end), ["number"])

    assert sorted(found.column("number").to_pylist()) == [0, 0, 10, 11]


@pytest.mark.parametrize("grown", ["red", "blue"])
def test_a_query_selects_while_one_of_its_queues_alone_has_a_new_column(store, session, grown):
    for name in ("red", "blue"):
        make_queue(store, name).load(orders(3))
    query = session(queues="red,blue", selector="number >= 2", refreshInterval="0")
    queue = store.queue(grown)
    queue.admin.add_columns(EXTRA)
    load_singly(queue, NEIGHBOURS, 3)
    assert queue.admin.compact() == 3 + NEIGHBOURS

    end = query.next(START, None, None)

    found = {"red": [], "blue": []}
    for message in read_table(query.plan(START, end), ["_queue", "number"]).to_pylist():
        found[message["_queue"]].append(message["number"])
    assert found == {"red": [2], "blue": [2], grown: [*range(2, 3 + NEIGHBOURS)]}


@pytest.mark.parametrize("grown", ["red", "blue"])
def test_a_query_goes_on_when_the_messages_of_one_queue_get_times_of_their_own(
    store, session, grown
):
    for name in ("red", "blue"):
        make_queue(store, name).load(orders(1))
    query = session(queues="red,blue", refreshInterval="0")
    # This adds a column, by which the query leaves out what has expired.
    store.queue(grown).load(orders(1, 1), ttl=3600)

    end = query.next(START, None, None)

    assert values(read_table(query.plan(START, end), ["number"])) == [(0,), (0,), (1,)]


def test_a_browser_fails_too(store, session, grow):
    make_queue(store).load(orders(2))
    query = session(ack="browse", all_columns=True)
    first = query.next(START, None, None)
    grow("orders", [2], extra="x")
    assert len(query.plan(START, first)) == 2
    end = query.next(first, None, None)
    with pytest.raises(SchemaMismatch, match="'orders' has the new column 'extra'"):
        query.plan(first, end)
    assert values(read_table(session(ack="browse").plan(first, end)), "extra") == [(2, "x")]
