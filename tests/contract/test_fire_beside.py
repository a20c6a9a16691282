"""Firings beside a transaction of a caller that holds the locks of their shards."""

import time

import pytest
from sqlalchemy import Integer, select

from ignis_source.offset import Offset
from queue_core import ConsumerPool, Retry, constant, limit
from queue_core.catalog import dialect, record_tables
from queue_core.catalog.records import schedule
from queue_core.catalog.slices.rewritable import NEIGHBOURS
from queue_core.catalog.tables import slices
from queue_core.support import faults
from queue_core.upkeep.tasks.expire import retire
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.values.model import INLINE, Magazine
from queue_core.verbs.abandon import abandon
from queue_core.verbs.expire import expire
from queue_core.verbs.quarantine import quarantine
from queue_core.verbs.shovel import Shovelful, shovel
from tests.clocks import make_due
from tests.contract.pools import Recorder
from tests.dump import load_earlier, log_earlier, log_in_a_minute, set_time
from tests.factories import load_singly, make_filled, make_queue, numbers_of, orders, with_sidelined
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import PATIENCE, Caller, look_at_once, until

#: SQLite has one writer.
pytestmark = ONLY_POSTGRESQL

#: Longer than a firing waits, and much shorter than the database does.
SOON = 30.0
#: As a firing or a load locks rows.
LOCK = "SELECT 1 FROM {} WHERE {} FOR UPDATE"


@pytest.fixture
def caller(caller, monkeypatch):
    # Nobody gives up a lock of the caller in time, so shorter waits for it show the same.
    monkeypatch.setattr(dialect, "TASK_LOCK_SECONDS", 0.2)
    monkeypatch.setattr("queue_core.verbs.fire.WAIT_SECONDS", 0.1)
    return caller


@pytest.mark.parametrize("limits", [None, limit(in_flight=100)])
@pytest.mark.parametrize("how", [{}, {"selector": "number >= 0"}, {"order": "global"}])
def test_a_firing_finds_nothing_there_for_now(store, caller, how, limits):
    queue = make_filled(store, 3, shards=1, limits=limits)
    with caller.connected() as connection:
        queue.within(connection).delete(queue.within(connection).fire())
        start = time.monotonic()
        firing = queue.fire("all", **how)
        assert time.monotonic() - start < SOON
        assert len(firing) == 0
        # It says when to try again, and the second attempt is brief.
        assert 0 < firing.opens_in < SOON
        connection.rollback()
    assert numbers_of(queue.fire("all", **how).messages) == [0, 1, 2]


@pytest.mark.parametrize("settings", [{"selector": "number >= 0"}, {"message_expiry": 3_600}])
def test_a_subscription_that_cannot_take_in_its_log_gives_nothing_for_now(store, caller, settings):
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("billing", to="orders", **settings)
    topic.load(orders(2))
    with caller.connected() as connection:
        reader.within(connection).delete(reader.within(connection).fire())
        topic.load(orders(1, 2))
        start = time.monotonic()
        firing = reader.fire("all")
        assert time.monotonic() - start < SOON
        assert len(firing) == 0
        assert 0 < firing.opens_in < SOON
        connection.rollback()
    assert numbers_of(reader.fire("all").messages) == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"selector": "number >= 0"}, {}),
        ({"message_expiry": 3_600}, {}),
        ({}, {"order_by": "number"}),
    ],
)
def test_a_subscription_takes_in_what_no_transaction_keeps(store, caller, settings, wanted):
    topic = make_queue(store, shards=2, key="number", log="7 days")
    reader = store.subscribe("billing", to="orders", **settings)
    topic.load(orders(40))
    first = f"queue_id = {reader.info.id} AND magazine = {int(Magazine.MAIN)} AND shard = 0"
    with caller.connected() as connection:
        caller.run(connection, LOCK.format("shard_locks", first))
        start = time.monotonic()
        free = numbers_of(reader.fire("all", **wanted).messages)
        assert 0 < len(free) < 40
        assert time.monotonic() - start < SOON
        connection.rollback()
    left = numbers_of(reader.fire("all", **wanted).messages)
    assert sorted(free + left) == list(range(40))


@pytest.mark.parametrize("work", ["trim", "compact"])
def test_no_subscription_waits_for_another_one_since_their_log_is_worked_on(store, caller, work):
    topic = make_queue(store, log="0s")
    readers = [store.subscribe(name, to="orders") for name in ("free", "held")]
    load_singly(topic, 8)
    log_in_a_minute(store)
    with caller.connected() as connection:
        readers[1].within(connection).fire()
        start = time.monotonic()
        assert getattr(topic.admin, work)() == 0
        assert time.monotonic() - start < SOON
        connection.rollback()
    for reader in readers:
        assert numbers_of(reader.fire("all").messages) == list(range(8))
    assert topic.admin.trim() == 8


def test_a_late_subscription_that_is_held_keeps_no_other_one_from_its_end(store, caller):
    topic = make_queue(store, log="0s")
    for name in ("busy", "free"):
        store.subscribe(name, to="orders", late="0.001s")
    topic.load(orders(3))
    with caller.connected() as connection:
        store.queue("busy").within(connection).fire()
        start = time.monotonic()
        assert topic.admin.trim() == 0
        assert time.monotonic() - start < SOON
        assert not store.queue("busy").info.detached_at
        assert store.queue("free").info.detached_at
        connection.rollback()
    assert topic.admin.trim() == 3
    assert store.queue("busy").info.detached_at


def test_a_browser_shows_what_no_transaction_keeps_of_a_subscription(store, caller, session):
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("reading", to="orders")
    topic.load(orders(3))
    query = session(queues="reading", ack="browse")
    end = query.next(Offset("eyes", 0), None, None)
    assert len(query.plan(Offset("eyes", 0), end)) == 3
    topic.load(orders(3, 3))
    with caller.connected() as connection:
        reader.within(connection).fire()
        start = time.monotonic()
        look_at_once(query)
        assert query.next(end, None, None) == end
        assert time.monotonic() - start < SOON
        connection.rollback()
    look_at_once(query)
    last = query.next(end, None, None)
    assert len(query.plan(end, last)) == 3


def test_a_query_that_ends_by_itself_waits_for_a_transaction_that_keeps_its_subscription(
    store, caller, session, monkeypatch
):
    monkeypatch.setattr(dialect.Dialect, "busy_seconds", 0.5)
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("reading", to="orders")
    topic.load(orders(3))
    query = session(queues="reading")
    with caller.connected() as connection:
        reader.within(connection).fire()
        begun = Caller(query.set_horizon)
        # For longer than the database does.
        begun.join(1.5)
        assert begun.is_alive()
        connection.rollback()
    begun.done()
    topic.load(orders(3, 3))
    end = query.next(Offset("reader", 0), None, None)
    assert len(query.plan(Offset("reader", 0), end)) == 3


@pytest.mark.spoiled
def test_damage_in_a_log_is_set_apart_beside_a_subscription_that_is_held(store, caller):
    topic = make_queue(store, log="7 days")
    free, held = (store.subscribe(name, to="orders") for name in ("free", "held"))
    topic.load(orders(3))
    spoiled = topic.load(orders(3, 3))[0].as_py() >> 20
    store.storage.report_damage(f"{INLINE}{spoiled}", "by the test")
    with caller.connected() as connection:
        held.within(connection).fire()
        start = time.monotonic()
        assert quarantine(store.catalog, store.storage) == 6
        assert time.monotonic() - start < SOON
        connection.rollback()
    assert numbers_of(free.fire("all").messages) == [0, 1, 2]
    # The report is still there, for what was held.
    assert quarantine(store.catalog, store.storage) == 3
    assert numbers_of(held.fire("all").messages) == [0, 1, 2]
    assert quarantine(store.catalog, store.storage) == 0
    assert store.storage.damage_reports() == {}


@pytest.mark.spoiled
def test_damage_is_set_apart_beside_a_transaction_that_has_fired_some_of_it(store, caller):
    queue, other = make_queue(store), make_queue(store, "other")
    for each in (queue, other):
        spoiled = each.load(orders(3))[0].as_py() >> 20
        store.storage.report_damage(f"{INLINE}{spoiled}", "by the test")
    with caller.connected() as connection:
        assert numbers_of(queue.within(connection).fire(3).messages) == [0, 1, 2]
        start = time.monotonic()
        assert quarantine(store.catalog, store.storage) == 3
        assert time.monotonic() - start < SOON
        connection.rollback()
    # The reports are still there, for what was held.
    assert quarantine(store.catalog, store.storage) == 3
    assert store.storage.damage_reports() == {}
    assert len(queue.fire("all")) == len(other.fire("all")) == 0


def test_a_late_subscription_that_cannot_be_dropped_yet_keeps_no_other_one_from_its_end(
    store, caller
):
    topic = make_queue(store, log="0s")
    late = {"to": "orders", "late": "0.001s", "when_late": "drop"}
    busy = store.subscribe("busy", **late)
    topic.load(orders(3))
    faults.arm("detach.committed=raise")
    with pytest.raises(faults.InjectedFault):
        topic.admin.trim()
    faults.arm(None)
    store.subscribe("free", **late)
    topic.load(orders(3, 3))
    with caller.connected() as connection:
        caller.run(connection, LOCK.format("shard_locks", f"queue_id = {busy.info.id}"))
        start = time.monotonic()
        topic.admin.trim()
        assert time.monotonic() - start < SOON
        assert store.queues() == ["busy", "orders"]
        connection.rollback()
    topic.admin.trim()
    assert store.queues() == ["orders"]


def test_a_queue_that_is_too_old_is_retired_after_a_transaction(store, caller):
    queue = make_queue(store, queue_expiry=0.001)
    with caller.connected() as connection:
        caller.run(connection, LOCK.format("queues", f"id = {queue.info.id}"))
        start = time.monotonic()
        retire(store.catalog, queue.info)
        assert time.monotonic() - start < SOON
        connection.rollback()
    retire(store.catalog, queue.info)
    assert store.queue("orders").info.deactivated_at is not None


def test_the_expiry_of_a_subscription_goes_on_where_no_transaction_keeps_it(store, caller):
    topic = make_queue(store, shards=2, key="number", log="7 days")
    expiry = {"message_expiry": 3_600, "sideline_expiry": 3_600}
    reader = store.subscribe("billing", to="orders", **expiry)
    topic.load(orders(40))
    reader.reload(reader.fire("all"))
    reader.sideline(reader.fire(10))
    load_earlier(store, 7_200)
    topic.load(orders(20, 40))
    log_earlier(store, 7_200, "loaded_at", "logged_at")

    def run():
        return expire(store.catalog, store.storage.uri, reader.info, in_parts=True)

    first = f"queue_id = {reader.info.id} AND magazine = {int(Magazine.MAIN)} AND shard = 0"
    with caller.connected() as connection:
        caller.run(connection, LOCK.format("shard_locks", first))
        start = time.monotonic()
        # Those of the sideline, and of the other shard.
        moved = run()
        assert 10 < moved < 40
        assert time.monotonic() - start < SOON
        connection.rollback()
    assert moved + run() == 60


@pytest.mark.parametrize(
    ("task", "settings"),
    [("expire", {"message_expiry": 3_600}), ("compact", {}), ("abandon", {"max_deliveries": 3})],
)
def test_a_task_leaves_what_is_locked_to_its_next_run(store, caller, task, settings):
    queue = make_filled(store, NEIGHBOURS, each=1, **settings)
    if task == "expire":
        load_earlier(store, 7_200)
    elif task == "abandon":
        often = slices.c.deliveries + 3
        store.catalog.write(lambda c: set_time(c, slices, "deliveries", often))
    queue.load(orders(1, NEIGHBOURS))
    files = store.storage.list()

    def run():
        if task == "compact":
            return queue.admin.compact()
        if task == "abandon":
            return abandon(store.catalog, queue.info, lambda _: None)
        return expire(store.catalog, store.storage.uri, queue.info, in_parts=True)

    with caller.connected() as connection:
        queue.within(connection).fire(1)
        start = time.monotonic()
        assert run() == 0
        assert time.monotonic() - start < SOON
        assert store.storage.list() == files
        connection.rollback()
    assert run() >= NEIGHBOURS


@pytest.mark.parametrize("policy", [Retry(attempts=3, backoff=constant(60)), None])
def test_messages_that_return_wait_for_a_transaction_and_keep_no_others_waiting(
    store, caller, policy
):
    queue = with_sidelined(store, 3, retry=policy)
    make_due(store)

    def run():
        if policy is None:
            return shovel(store.catalog, queue.info, Shovelful(early=False))
        return sum(each.moved for each in Retries(store.catalog, store.storage).run()[0])

    with caller.connected() as connection:
        queue.within(connection).fire(1, magazine="sideline")
        start = time.monotonic()
        assert run() == 0
        assert time.monotonic() - start < SOON
        connection.rollback()
    assert run() == 3


def test_due_messages_of_other_shards_return_beside_a_transaction(store, caller, monkeypatch):
    # A shard that is locked may have more due slices than a transaction looks at.
    monkeypatch.setattr("queue_core.verbs.retry.ROUND_SLICES", 1)
    policy = Retry(attempts=3, backoff=constant(60))
    queue = with_sidelined(store, 60, shards=3, key="number", retry=policy)
    make_due(store)
    # The locked one is due first.
    earlier = slices.c.due_at - slices.c.shard.in_([0]).cast(Integer) * 1_000_000
    store.catalog.write(lambda c: set_time(c, slices, "due_at", earlier))
    first = f"queue_id = {queue.info.id} AND magazine = {int(Magazine.SIDELINE)} AND shard = 0"
    with caller.connected() as connection:
        caller.run(connection, LOCK.format("shard_locks", first))
        (ran,), _ = Retries(store.catalog, store.storage).run()
        assert 0 < ran.moved < 60
        assert queue.browse().num_rows == ran.moved
        assert Retries(store.catalog, store.storage).run()[0] == []
        connection.rollback()
    (rest,), _ = Retries(store.catalog, store.storage).run()
    assert ran.moved + rest.moved == queue.browse().num_rows == 60


def test_a_shovel_that_meets_a_transaction_runs_again_soon(store, caller):
    queue = with_sidelined(store, 3)
    make_due(store)
    store.catalog.write(lambda c: schedule.claim(c, queue.info.id, "shovel", 3_600, first=0.0))
    with caller.connected() as connection:
        queue.within(connection).fire(1, magazine="sideline")
        assert shovel(store.catalog, queue.info, Shovelful(early=False)) == 0
        connection.rollback()
    row = record_tables.schedule.c
    with store.catalog.read() as connection:
        left = connection.scalar(select(row.due_at - dialect.now()).where(row.task == "shovel"))
    assert 0 < left / 1e6 < 60


def test_a_firing_that_waits_gets_them_after_the_transaction(store, caller):
    queue = make_filled(store, 2, shards=1)
    with caller.connected() as connection:
        queue.within(connection).delete(queue.within(connection).fire())
        waiting = Caller(lambda: queue.fire(timeout=PATIENCE))
        # For longer than its first attempt, and the pause after that.
        time.sleep(0.9)
        assert waiting.is_alive()
        connection.commit()
        assert numbers_of(waiting.done().messages) == [1]


def test_another_transaction_finds_nothing_and_goes_on(store, caller):
    queue = make_filled(store, 2, shards=1)
    with caller.connected() as one, caller.connected() as other:
        queue.within(one).delete(queue.within(one).fire())
        caller.sell(other, 1)
        usual = caller.run(other, "SHOW lock_timeout").scalar()
        start = time.monotonic()
        assert len(queue.within(other).fire()) == 0
        assert time.monotonic() - start < SOON
        # Its own rows are there, and its own limits.
        assert caller.run(other, "SHOW lock_timeout").scalar() == usual
        queue.within(other).load(orders(1, 5))
        one.commit()
        queue.within(other).delete(queue.within(other).fire())
        assert caller.run(other, "SHOW lock_timeout").scalar() == usual
        other.commit()
    assert caller.sold() == [1]
    assert numbers_of(queue.browse()) == [5]


def test_a_pool_serves_its_other_queues_and_drains_both(store, caller):
    held, free = make_queue(store, "held", shards=1), make_queue(store, "free", shards=1)
    held.load(orders(3))
    handler = Recorder()
    with caller.connected() as connection:
        held.within(connection).delete(held.within(connection).fire())
        with ConsumerPool(store, ["held", "free"], handler, concurrency=2) as pool:
            for number in range(10, 14):
                start = time.monotonic()
                free.load(orders(1, number))
                until(lambda number=number: number in handler.numbers)
                assert time.monotonic() - start < SOON
            # Messages are left, so it is not drained.
            assert not pool.drain(1.0)
            connection.rollback()
            assert pool.drain(PATIENCE)
    assert handler.numbers == [0, 1, 2, 10, 11, 12, 13]
