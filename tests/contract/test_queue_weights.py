"""Queue weights: how several queues share the micro-batches of one query."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ignis_source.offset import Offset
from queue_core.errors import BadOption
from queue_core.segments.reader import read_table
from tests.contract.callers import Seller
from tests.factories import ORDERS, make_queue, orders
from tests.statements import counted
from tests.storages import ONLY_POSTGRESQL

HELD = pa.schema([*ORDERS, ("_hold_until", pa.timestamp("us", "UTC"))])


class Reader:
    """A query whose micro-batches are taken one by one."""

    def __init__(self, session, *queues, start=0, **options):
        self.session = session(queues=",".join(queues), **options)
        self.at = Offset("reader", start)

    def batch(self, max_messages, max_bytes=None):
        """How many messages of each queue the next micro-batch has."""
        end = self.session.next(self.at, max_messages, max_bytes)
        found = read_table(self.session.plan(self.at, end), ["_queue"])
        self.session.acknowledge(end)
        self.at = end
        return Counter(found.column("_queue").to_pylist())

    def batches(self, count, max_messages):
        """How many messages of each queue the next *count* micro-batches have together."""
        return sum((self.batch(max_messages) for _ in range(count)), Counter())


def queues(store, count=1000, **weights):
    for name, weight in weights.items():
        make_queue(store, name, shards=2, weight=weight).load(orders(count))


def test_queues_share_a_batch_by_their_weights(store, session):
    queues(store, large=4, a=1, b=1.0, small=0.5)
    reader = Reader(session, "large", "a", "b", "small")
    assert reader.batch(130) == {"large": 80, "a": 20, "b": 20, "small": 10}


@pytest.mark.parametrize(("most", "each"), [(6, 1), (12, 2), (30, 5), (48, 8)])
def test_without_weights_a_batch_serves_all_queues_before_their_other_shards(
    store, session, most, each
):
    """Also with fewer messages than there are shards, or a number that they cannot share."""
    names = [f"queue{number}" for number in range(6)]
    for name in names:
        make_queue(store, name, shards=4, key="number").load(orders(400))
    reader = Reader(session, *names)

    for _ in range(4):
        assert reader.batch(most) == dict.fromkeys(names, each)


def test_over_small_batches_and_a_restart_the_parts_are_exact(store, session):
    """Each batch has fewer messages than there are queues, and fewer than there are shards."""
    queues(store, a=1, b=1, c=2, d=4)
    reader = Reader(session, "a", "b", "c", "d")
    before = reader.batches(20, 3)
    reader.session.close()

    again = Reader(session, "a", "b", "c", "d", start=reader.at.ticket)
    after = again.batches(20, 3)

    for served in (before, after):
        assert sum(served.values()) == 60
        wanted = {"a": 7.5, "b": 7.5, "c": 15, "d": 30}
        assert all(abs(served[name] - wanted[name]) <= 2 for name in wanted)


def test_a_queue_of_512_shards_starves_none(store, session):
    make_queue(store, "wide", shards=512, key="number", weight=3).load(orders(4096))
    queues(store, 50, narrow=1)
    reader = Reader(session, "wide", "narrow")

    assert reader.batches(10, 20) == {"wide": 150, "narrow": 50}
    # Its own shards have turns as ever: none of 512 was fired from twice.
    wide = (pc.field("queue") == "wide") & (pc.field("magazine") == "main")
    shards = store.view("shards").filter(wide)
    assert Counter(shards.column("fired").to_pylist()) == {0: 362, 1: 150}


@pytest.mark.parametrize("how", [{}, {"selector": "number >= 0"}], ids=str)
def test_a_batch_limited_in_bytes_is_shared_by_weight(store, session, how):
    queues(store, large=3, small=1)
    reader = Reader(session, "large", "small", **how)
    sizes = store.view("slices").column("bytes").to_pylist()
    served = reader.batch(None, sum(sizes) // 10)
    assert 145 <= served["large"] <= 151
    assert 45 <= served["small"] <= 51


def test_weights_count_beside_conditions_on_messages(store, session):
    """Here, one transaction searches, and another one takes what it has found."""
    for name, weight in (("large", 4), ("a", 1), ("rest", 1)):
        queue = make_queue(store, name, HELD, shards=2, weight=weight)
        queue.load(orders(300))
    store.queue("rest").delete(store.queue("rest").fire(290))
    held = make_queue(store, "held", HELD, shards=2, weight=4)
    held.load(orders(300), hold="1h")
    reader = Reader(session, "large", "a", "rest", "held", selector="number >= 0")

    assert reader.batch(60) == {"large": 40, "a": 10, "rest": 10}
    assert reader.batch(50) == {"large": 40, "a": 10}
    assert reader.batch(300) == {"large": 220, "a": 80}


def test_weights_count_among_fair_queues(store, session):
    make_queue(store, "fair", shards=2, fair_by="customer", weight=3).load(orders(300))
    queues(store, other=1)
    reader = Reader(session, "fair", "other")
    assert reader.batch(40) == {"fair": 30, "other": 10}
    served = reader.batch(None, sum(store.view("slices").column("bytes").to_pylist()) // 50)
    assert 2 < served["fair"] / served["other"] < 4


def test_an_order_of_the_query_comes_before_weights(store, session):
    queues(store, 100, first=1, second=4)
    reader = Reader(session, "first", "second", order="global")
    assert reader.batch(100) == {"first": 100}


def test_messages_that_cannot_be_fired_hold_up_no_other_queue(store, session):
    """The counters say that a queue has messages, and all of them were fired too often."""
    make_queue(store, "spent", weight=1000, max_deliveries=1).load(orders(100))
    spent = store.queue("spent")
    spent.reload(spent.fire("all"))
    queues(store, 100, other=1)
    reader = Reader(session, "spent", "other")

    assert reader.batches(3, 10) == {"other": 30}


def test_a_message_that_cannot_be_fired_does_not_hide_those_of_a_log(store, session):
    topic = make_queue(store, "topic", log="7 days")
    late = store.subscribe("late", to="topic", weight=3, max_deliveries=1)
    topic.load(orders(1))
    late.reload(late.fire(1))
    topic.load(orders(8, 1))
    queues(store, 4, other=1)
    reader = Reader(session, "late", "other")

    assert reader.batch(100) == {"late": 8, "other": 4}


def test_messages_behind_the_end_of_a_run_hold_up_no_other_queue(store, session):
    queues(store, 100, ahead=1000, other=1)
    reader = Reader(session, "ahead", "other")
    reader.session.set_horizon()
    store.queue("ahead").load(orders(1000))
    assert reader.batches(2, 100) == {"ahead": 100, "other": 100}


@ONLY_POSTGRESQL  # SQLite has one writer
def test_a_queue_from_which_another_transaction_fires_holds_up_no_other(store, session):
    make_queue(store, "large", weight=4).load(orders(100))
    queues(store, 100, a=1, b=1)
    reader = Reader(session, "large", "a", "b")

    with Seller(store) as caller, caller.connected() as connection:
        store.queue("large").within(connection).fire()
        assert reader.batch(12) == {"a": 6, "b": 6}
        connection.rollback()
    assert reader.batch(12) == {"large": 8, "a": 2, "b": 2}


def test_weights_cost_no_statement(store, session):
    counts = []
    for weight in (1, 5):
        names = [f"of{weight}-{number}" for number in range(5)]
        queues(store, 100, **dict.fromkeys(names, weight))
        reader = Reader(session, *names, consumer=f"reader-{weight}")
        reader.at = Offset(f"reader-{weight}", 0)
        for _ in range(2):
            reader.batch(10)
        with counted(store) as statements, counted(reader.session.store) as own:
            reader.batch(10)
        counts.append(len(statements) + len(own))

    assert counts[1] <= counts[0]


def test_a_weight_out_of_range_is_refused(store):
    for weight in (0, -1, 1001, "much", None, True, float("nan")):
        with pytest.raises(BadOption, match=r"weight=.*use a number from 0.001 to 1000"):
            make_queue(store, weight=weight)
