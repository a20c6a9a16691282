"""A clock that was ahead is set back: no process that died meanwhile counts as alive for days."""

from dataclasses import replace

import pytest
from sqlalchemy import select

from ignis_source.offset import Offset
from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import leases as lease_rows
from queue_core.catalog.holders import interests, leases, waiters
from queue_core.catalog.holders.leases import LONGEST_LEASE_SECONDS
from queue_core.catalog.identity import clock
from queue_core.catalog.records import schedule
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.errors import BadOption
from tests.clocks import jump
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.waiting import Caller, stands_for_ever, waits

pytestmark = pytest.mark.each_catalog

#: Days by which the clock was ahead.
AHEAD = 3.0
#: A minute and a second, in days.
DEAD = 61 / (24 * 3600)


def set_back(store, days=AHEAD):
    jump(store, -days)


@pytest.mark.parametrize("verb", ["load", "fire"])
def test_a_waiter_that_died_holds_no_other_back(store, verb):
    queue = make_queue(store, max_size=1)
    stands_for_ever(store, queue, verb, alive=waiters.ALIVE_SECONDS)
    set_back(store)

    assert len(queue.load(orders(1), timeout=0)) == 1
    assert len(queue.fire(1, timeout=0)) == 1


def test_a_waiter_that_lives_waits_on(store):
    queue = make_filled(store, 1, max_size=1)
    caller = Caller(lambda: queue.load(orders(1, 1)))
    waits(store, 1)
    set_back(store)

    queue.delete(queue.fire(1))
    caller.done()
    assert numbers_of(queue.browse()) == [1]


@pytest.mark.parametrize("how", [{"claim": interests.EXCLUSIVE}, {"priority": 5}])
def test_a_consumer_that_died_does_not_precede_others(store, how):
    queue = make_filled(store, 2)
    for name, mine in (("dead", how), ("living", {"priority": 1})):
        consumer = store.consumer(name, beats=True)
        store.catalog.write(
            lambda c, of=consumer, mine=mine: interests.register(c, of, [queue.info.id], **mine)
        )
        if name == "dead":
            set_back(store)

    assert len(queue.fire("all", consumer=consumer)) == 2


def test_the_messages_of_a_consumer_can_be_swept_once_it_died(store):
    queue = make_filled(store, 2)
    queue.fire("all", consumer=store.consumer("dead", beats=True))
    set_back(store)
    assert queue.sweep(older_than=0) == 0
    with pytest.raises(BadOption, match="'dead' is alive"):
        queue.sweep(consumer="dead")

    jump(store, DEAD)
    store.admin.accept_clock()

    assert queue.sweep(consumer="dead") == 2


def test_a_lease_of_a_process_that_died_ends(store):
    store.catalog.write(lambda c: leases.hold(c, f"{leases.BACKUP}dead", "dead", 30))
    set_back(store)
    clock.check(store.catalog)

    with store.catalog.read() as connection:
        left = connection.scalar(select(lease_rows.c.ends_at - dialect.now())) or 0
    assert 0 < left <= LONGEST_LEASE_SECONDS * 1e6


def test_a_task_that_began_in_the_future_is_due(store):
    job = (make_queue(store).info.id, "compact")
    store.catalog.write(lambda c: schedule.claim(c, *job, 300, 0))
    set_back(store)

    with store.catalog.read() as connection:
        assert schedule.due(connection, {job: 300.0}) == [job]
    assert store.catalog.write(lambda c: schedule.claim(c, *job, 300))
    assert not store.catalog.write(lambda c: schedule.claim(c, *job, 300))


def test_a_run_to_the_end_fires_no_message_again_that_comes_back(store, session, monkeypatch):
    real = Horizon.now

    def an_hour_ago(*given):
        moment = real(*given)
        return replace(moment, at=moment.at + 3_600_000_000)

    queue = make_filled(store, 2)
    query, start = session(ack="settle"), Offset("reader", 0)
    monkeypatch.setattr(Horizon, "now", an_hour_ago)
    query.set_horizon()

    end = query.next(start, None, None)
    assert len(query.plan(start, end)) == 2
    queue.reload(queue.browse().column("_message_id"))
    query.acknowledge(end)
    assert query.next(end, None, None) == end
    assert queue.browse().num_rows == 2
