"""Queues end: given up for good, and later gone, with their name."""

import threading
import time

import pytest
from sqlalchemy import select

from queue_core import Store
from queue_core.catalog import record_tables
from queue_core.errors import QueueDeactivated
from queue_core.upkeep.tasks.expire import retire
from queue_core.upkeep.tasks.purge import purge
from tests.dump import age, dump
from tests.factories import (
    make_batch,
    make_filled,
    make_queue,
    make_stager,
    numbers_of,
    orders,
    publish_once,
    with_sidelined,
)
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import Caller

YEAR = 365 * 24 * 3600.0


@pytest.mark.parametrize("exist_ok", [True, False])
def test_the_name_of_a_deactivated_queue_is_taken_and_the_reason_is_told(store, exist_ok):
    make_queue(store).admin.deactivate()
    with pytest.raises(QueueDeactivated, match="'orders' was deactivated at 20"):
        make_queue(store, exist_ok=exist_ok)


def test_nothing_is_loaded_into_a_deactivated_queue_nor_fired_from_it(store):
    queue, other = make_queue(store), store.queue("orders")
    queue.load(orders(3))
    queue.admin.deactivate()
    store.consumer()
    before = dump(store)

    for refused in (lambda: queue.load(orders(1)), queue.fire, lambda: other.load(orders(1))):
        with pytest.raises(QueueDeactivated, match="'orders' was deactivated at 20"):
            refused()
    queue.admin.deactivate()
    assert dump(store) == before
    assert other.refresh().info.deactivated_at == queue.info.deactivated_at is not None


def test_what_is_in_it_can_be_looked_at_and_what_is_in_flight_finished(store):
    queue = make_filled(store, 5)
    firing = queue.fire(2)
    store.queue("orders").admin.deactivate()
    assert numbers_of(queue.peek()) == [2, 3, 4]
    assert queue.browse().num_rows == 5
    assert queue.delete(firing) == 2
    assert store.queues() == ["orders"]


def test_a_batch_of_a_streaming_query_is_refused(store):
    queue = make_queue(store)
    stager = make_stager(queue)
    for batch in orders(3).to_batches():
        stager.add(batch)
    staged = [segment.in_shard(0) for segment in stager.finish()]
    queue.admin.deactivate()

    with pytest.raises(QueueDeactivated):
        publish_once(store.catalog, store.storage, queue.info, staged, make_batch(staged, 1))
    assert queue.browse().num_rows == 0


@ONLY_POSTGRESQL  # SQLite lets one write at a time
def test_a_load_under_way_is_in_the_queue_before_it_is_given_up(store):
    """Where loads do not keep others from writing, they are waited for."""
    queue, begun, go_on = make_queue(store), threading.Event(), threading.Event()
    at_commit = store.catalog.write

    def slowly(work, **how):
        def paused(connection):
            result = work(connection)
            begun.set()
            assert go_on.wait(60)
            return result

        return at_commit(paused, **how)

    slow = store.queue("orders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.catalog, "write", slowly)
        loading = Caller(lambda: slow.load(orders(1)))
        assert begun.wait(60)
    giving_up = Caller(queue.admin.deactivate)
    giving_up.join(0.3)
    assert giving_up.is_alive(), "it waits for the load"
    go_on.set()
    loading.done()
    giving_up.done()
    assert queue.browse().num_rows == 1


# --- retired and dropped --------------------------------------------------------------------------


def test_a_queue_is_given_up_at_its_own_age(store):
    queue = make_queue(store, queue_expiry=YEAR)
    retire(store.catalog, queue.info)
    assert queue.refresh().info.deactivated_at is None
    age(store, YEAR)
    assert queue.admin.expire() == 0
    assert queue.refresh().info.deactivated_at is not None


def test_a_queue_is_not_given_up_by_settings_of_before(store):
    """A process of many tasks may have read it hours before."""
    queue = make_queue(store, queue_expiry=YEAR)
    stale = queue.info
    queue.admin.change_settings(queue_expiry=None)
    age(store, YEAR)
    retire(store.catalog, stale)
    assert queue.refresh().info.deactivated_at is None


@pytest.mark.parametrize(
    ("settings", "lifetime"),
    [
        ({"queue_expiry": YEAR}, YEAR),
        ({"message_expiry": 3600.0}, 3600.0),
        ({"message_expiry": 3600.0, "queue_expiry": YEAR}, YEAR),
    ],
)
def test_it_is_dropped_after_twice_its_time_and_its_name_is_free(store, settings, lifetime):
    queue = make_queue(store, **settings)
    queue.admin.deactivate()
    age(store, 2 * lifetime - 60)
    retire(store.catalog, queue.info)
    assert store.queues() == ["orders"]

    age(store, 60)
    retire(store.catalog, queue.info)

    assert store.queues() == []
    make_queue(store).load(orders(1))


def test_the_task_is_told_that_has_ended_a_subscription_before_its_log(store):
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("billing", to="orders", queue_expiry=YEAR)
    topic.load(orders(5))
    age(store, YEAR)
    retire(store.catalog, reader.info)

    assert reader.refresh().info.deactivated_at is not None
    (report,) = store.view("reports").to_pylist()
    shown = [report[name] for name in ("task", "queue", "from", "to", "moved")]
    assert shown == ["expire", "billing", "log", None, 5]


def test_its_waiting_messages_are_reported_and_its_sideline_keeps_it(store):
    queue = make_filled(store, 5, queue_expiry=YEAR)
    queue.sideline(queue.fire(2))
    for _ in range(2):
        age(store, 3 * YEAR)
        queue.admin.expire()

    assert store.queues() == ["orders"]
    assert store.view("reports").num_rows == 0

    queue.admin.change_settings(sideline_expiry=0.001)
    time.sleep(0.01)
    queue.admin.expire()
    queue.admin.expire()

    assert store.queues() == []
    (report,) = store.view("reports").to_pylist()
    shown = {name: report[name] for name in ("task", "queue", "from", "to", "moved")}
    assert shown == {"task": "expire", "queue": None, "from": "orders", "to": None, "moved": 3}


def test_one_that_never_expires_stays_for_ever(store):
    queue = make_queue(store, message_expiry=None)
    for end in (lambda: None, queue.admin.deactivate):
        end()
        age(store, 100 * YEAR)
        retire(store.catalog, queue.info)
    assert store.queues() == ["orders"]


# --- what was noted -------------------------------------------------------------------------------


def test_notes_of_messages_that_are_gone_are_forgotten(store, address):
    queue = with_sidelined(store, 2, reason="no")
    queue.shovel()
    purge(store.catalog, 0)
    assert queue.failures().num_rows == 2, "the messages are there still"
    with store.catalog.read() as connection:
        assert connection.execute(select(record_tables.task_log)).all() == []

    with Store(address) as another:
        # Not as the consumer that the purge has removed.
        again = another.queue("orders")
        again.delete(again.fire("all"))
    purge(store.catalog, 3600)
    assert queue.failures().num_rows == 2
    purge(store.catalog, 0)
    assert queue.failures().num_rows == 0
