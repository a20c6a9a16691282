"""Which consumer may fire: priorities, exclusive and single active consumers, between processes."""

import time

import pytest
import sqlalchemy as sa

from ignis_source.offset import Offset
from queue_core import ConsumerPool, ConsumerTarget
from queue_core.catalog.holder_tables import consumers as rows
from queue_core.catalog.holders import consumers, interests
from queue_core.catalog.poller import Watch
from queue_core.errors import ConsumerFenced, QueueTaken
from tests.dump import dump
from tests.factories import drop, make_filled, make_queue, numbers_of, orders
from tests.statements import counted
from tests.waiting import PATIENCE, Caller, until

pytestmark = pytest.mark.each_catalog

START = Offset("query", 0)


@pytest.fixture
def queue(store):
    return make_filled(store, 6)


def join(queue, name, **how):
    """A consumer that lives and is registered."""
    consumer = queue.store.consumer(name, beats=True)
    queue.store.catalog.write(lambda c: interests.register(c, consumer, [queue.info.id], **how))
    return consumer


def beat(queue, consumer, *, interested=True):
    def work(connection):
        consumers.heartbeat(connection, consumer)
        interests.tell(connection, consumer, interested=interested)

    queue.store.catalog.write(work)


#: Seconds without a heartbeat after which a consumer is gone: the living ones here send none.
GONE = 30.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(interests, "GONE_SECONDS", GONE)


def fall_silent(queue, consumer, seconds=GONE + 1):
    queue.store.catalog.write(
        lambda c: c.execute(
            sa.update(rows)
            .where(rows.c.id == consumer.id)
            .values(heartbeat_at=rows.c.heartbeat_at - int(seconds * 1e6))
        )
    )


def gets(queue, consumer):
    return numbers_of(queue.fire(1, consumer=consumer).messages)


@pytest.mark.parametrize(("high", "low"), [(5, 1), (0, -3), (None, 10**6)])
def test_a_lower_priority_gets_nothing_while_a_higher_one_is_interested(queue, high, low):
    first, last = join(queue, "first", priority=high), join(queue, "last", priority=low)

    assert gets(queue, last) == []
    assert gets(queue, first) == [0]


@pytest.mark.parametrize("how", ["uninterested", "left"])
def test_those_who_wait_are_woken_when_the_higher_one_is(store, queue, how):
    first = join(queue, "first", priority=5)
    with Watch(store.catalog) as watch:
        while watch.wait(0.05):
            pass
        beat(queue, first)
        assert not watch.wait(0)

        if how == "left":
            store.catalog.write(lambda connection: interests.leave(connection, first))
        else:
            beat(queue, first, interested=False)

        assert watch.wait(PATIENCE)


@pytest.mark.parametrize("how", ["uninterested", "gone", "left"])
def test_it_gets_all_when_the_higher_one_is(queue, how):
    first, last = join(queue, "first", priority=5), join(queue, "last", priority=1)
    if how == "uninterested":
        beat(queue, first, interested=False)
    elif how == "gone":
        fall_silent(queue, first)
    else:
        queue.store.catalog.write(lambda c: interests.leave(c, first))

    assert numbers_of(queue.fire("all", consumer=last).messages) == [0, 1, 2, 3, 4, 5]


def test_a_higher_one_that_comes_back_goes_first_again(queue):
    first, last = join(queue, "first", priority=5), join(queue, "last", priority=1)
    fall_silent(queue, first)
    assert gets(queue, last) == [0]
    beat(queue, first)

    assert gets(queue, last) == []
    assert gets(queue, first) == [1]


def test_equal_priorities_do_not_wait_for_each_other(queue):
    one, other = join(queue, "one", priority=2), join(queue, "other", priority=2)

    assert gets(queue, one) + gets(queue, other) == [0, 1]


def test_who_says_nothing_goes_before_all_and_holds_nobody_back(queue):
    low = join(queue, "low", priority=1)

    assert gets(queue, queue.store.consumer("nobody")) == [0]
    assert gets(queue, low) == [1]


def test_of_several_queues_those_are_fired_from_where_nobody_goes_first(store, queue):
    other = make_queue(store, "refunds")
    other.load(orders(2, 100))
    join(queue, "first", priority=5)
    low = store.consumer("low", beats=True)
    both = (queue.info.id, other.info.id)
    store.catalog.write(lambda c: interests.register(c, low, both, priority=1))

    with store.catalog.read() as connection:
        assert interests.open_to(connection, low, both).queue_ids == (other.info.id,)


def test_who_starts_again_with_fewer_queues_keeps_nobody_from_the_others(store, queue):
    other = make_queue(store, "refunds")
    other.load(orders(1, 100))
    first = store.consumer("first", beats=True)
    both, how = (queue.info.id, other.info.id), {"claim": interests.EXCLUSIVE}
    store.catalog.write(lambda c: interests.register(c, first, both, **how))

    join(queue, "first", **how)

    assert gets(other, store.consumer("late")) == [100]
    with pytest.raises(QueueTaken):
        gets(queue, store.consumer("later"))


def test_an_exclusive_consumer_keeps_others_out(store, queue):
    early = join(queue, "early")
    with pytest.raises(QueueTaken, match="cannot be exclusive while consumer 'early' is active"):
        join(queue, "alone", claim=interests.EXCLUSIVE)
    store.catalog.write(lambda c: interests.leave(c, early))
    join(queue, "alone", claim=interests.EXCLUSIVE)
    # It is started again.
    alone = join(queue, "alone", claim=interests.EXCLUSIVE)
    late = store.consumer("late", beats=True)
    before = dump(store)

    with pytest.raises(QueueTaken, match="queue 'orders': consumer 'alone' has it to itself"):
        store.catalog.write(lambda c: interests.register(c, late, [queue.info.id]))
    with pytest.raises(QueueTaken, match="consumer 'alone' has it to itself"):
        queue.fire(1, consumer=late)
    assert dump(store) == before
    assert gets(queue, alone) == [0]


def test_who_was_thought_gone_has_lost_the_queue_to_whoever_took_it(queue):
    old = join(queue, "old", claim=interests.EXCLUSIVE)
    fall_silent(queue, old)
    new = join(queue, "new", claim=interests.EXCLUSIVE)
    beat(queue, old)

    with pytest.raises(QueueTaken, match="consumer 'new' has it to itself"):
        queue.fire(1, consumer=old)
    assert gets(queue, new) == [0]


def test_of_single_active_ones_the_first_is_and_a_spare_takes_over(queue):
    active, spare = (join(queue, name, claim=interests.SINGLE) for name in ("a", "b"))
    assert (gets(queue, active), gets(queue, spare)) == ([0], [])

    fall_silent(queue, active)
    assert gets(queue, spare) == [1]


def test_of_single_active_ones_the_higher_priority_is(queue):
    low = join(queue, "low", claim=interests.SINGLE, priority=1)
    high = join(queue, "high", claim=interests.SINGLE, priority=2)

    assert (gets(queue, low), gets(queue, high)) == ([], [0])


@pytest.mark.parametrize("priority", [None, 9])
def test_a_single_active_one_keeps_nobody_back_that_is_none(queue, priority):
    single = join(queue, "single", claim=interests.SINGLE, priority=priority)
    other = join(queue, "other", priority=priority)
    plain = queue.store.consumer("plain")

    assert (gets(queue, plain), gets(queue, other), gets(queue, single)) == ([0], [1], [2])


def test_an_older_life_cannot_say_that_it_lives(queue):
    old = join(queue, "c", priority=1)
    queue.store.consumer("c", beats=True)

    with pytest.raises(ConsumerFenced):
        beat(queue, old)


def test_who_has_been_silent_for_long_is_forgotten(store, queue):
    fall_silent(queue, join(queue, "old", priority=9), 1000)
    join(queue, "new", priority=1)

    told = {row["consumer"]: row for row in store.view("consumers").to_pylist()}
    assert told["old"]["claim"] is None
    assert told["new"]["claim"] == "shared"


def test_the_view_tells_priority_and_interest(store, queue):
    consumer = join(queue, "c", priority=3, claim=interests.SINGLE)

    def told():
        (row,) = store.view("consumers").to_pylist()
        return row["priority"], row["interested"], row["claim"]

    assert told() == (3, "orders", "single")
    beat(queue, consumer, interested=False)
    assert told() == (3, "", "single")
    store.catalog.write(lambda c: interests.leave(c, consumer))
    assert told() == (None, None, None)


def test_two_consumers_that_ask_at_once_are_not_both_exclusive(store, queue):
    consumers, others = [store.consumer(name, beats=True) for name in ("one", "two")], []

    def claim(connection, consumer):
        interests.register(connection, consumer, [queue.info.id], claim=interests.EXCLUSIVE)

    def slowly(connection):
        claim(connection, consumers[0])
        others.append(Caller(lambda: store.catalog.write(lambda c: claim(c, consumers[1]))))
        time.sleep(0.3)

    store.catalog.write(slowly)

    with pytest.raises(QueueTaken, match="one"):
        others[0].done()


def test_a_dropped_queue_takes_the_interest_in_it_along(store, queue):
    join(queue, "c", priority=3)
    queue.admin.deactivate()

    queue.admin.drop()

    with store.catalog.read() as connection:
        assert connection.execute(sa.select(interests.interests)).all() == []


def test_there_is_no_interest_in_a_queue_that_was_dropped_just_before(store, queue):
    drop(queue)
    consumer = join(queue, "c", priority=3)
    store.catalog.write(lambda c: interests.show(c, consumer, [queue.info.id]))
    join(queue, "d")

    with store.catalog.read() as connection:
        assert connection.execute(sa.select(interests.interests)).all() == []


def test_one_statement_is_asked_unless_there_are_priorities_or_claims(store, queue):
    consumer = join(queue, "plain")
    with counted(store) as asked, store.catalog.read() as connection:
        asked.clear()
        interests.open_to(connection, consumer, [queue.info.id])
    assert len([s for s in asked if s.startswith("SELECT")]) == 1


@pytest.mark.parametrize(
    "browser",
    [
        lambda store: ConsumerPool(store, "orders", lambda _: True, browse=True, name="eyes"),
        lambda store: ConsumerTarget(store, "orders", print, browse=True, name="eyes"),
    ],
    ids=["pool", "target"],
)
def test_a_browser_goes_before_nobody(store, queue, browser):
    with (
        browser(store),
        ConsumerPool(store, "orders", lambda _: True, priority=1, tasks=[]) as pool,
    ):
        until(lambda: pool.counts.get("deleted") == 6)


def test_a_pool_of_the_sideline_keeps_main_from_nobody(store, queue):
    aside = ConsumerPool(
        store, "orders", lambda _: True, magazine="sideline", tasks=[], name="aside"
    )
    with aside, ConsumerPool(store, "orders", lambda _: True, priority=1, tasks=[]) as pool:
        until(lambda: pool.counts.get("deleted") == 6)


def test_a_query_of_the_sideline_without_a_priority_keeps_main_from_nobody(store, queue, session):
    aside = session(queues="orders_SIDELINE", singleActive="true")
    assert aside.next(START, None, None) == START
    with store.catalog.read() as connection:
        assert not connection.scalar(sa.select(interests.interests.c.interested))
    with ConsumerPool(store, "orders", lambda _: True, priority=1, tasks=[]) as pool:
        until(lambda: pool.counts.get("deleted") == 6)


@pytest.mark.usefixtures("quick_beats")
def test_a_query_keeps_nobody_back_while_its_breaker_is_open(store, queue, session):
    switch = store.admin.breaker("service")
    switch.open()
    query = session(priority="5", breaker='{"name": "service"}')
    assert query.next(START, None, None) == START
    with ConsumerPool(store, "orders", lambda _: True, priority=1, tasks=[]) as pool:
        until(lambda: pool.counts.get("deleted") == 6)
    switch.close()
    queue.load(orders(1, 6))
    until(lambda: query.next(START, None, None) != START)
