"""Expire: what nobody has finished in time is never handed out again, and then gone."""

import pytest
from sqlalchemy import update

from queue_core.catalog import reports
from queue_core.catalog.tables import slices
from tests.dump import dump
from tests.factories import make_queue, numbers_of, orders

#: Seconds; nothing expires by itself during a test.
EXPIRY = 10_000.0


def age(store, seconds=EXPIRY):
    """Let everything that is there have been loaded so many seconds earlier."""
    by = int(seconds * 1e6)
    earlier = update(slices).values(loaded_at=slices.c.loaded_at - by)
    store.catalog.write(lambda connection: connection.execute(earlier))


@pytest.fixture
def queue(store):
    return make_queue(store, message_expiry=EXPIRY)


def expired(queue):
    return sum(queue.metadata().column("expired").to_pylist())


def test_what_is_too_old_is_gone_and_counted(store, queue):
    queue.load(orders(3))
    age(store)
    queue.load(orders(2, 3))

    assert queue.expire() == 3
    assert numbers_of(queue.browse()) == [3, 4]
    assert expired(queue) == 3


def test_what_is_too_old_is_not_fired_nor_shown_nor_shovelled(store, queue):
    queue.load(orders(4))
    queue.sideline(queue.fire(2))
    age(store)
    queue.load(orders(1, 4))

    assert numbers_of(queue.peek()) == [4]
    assert len(queue.fire(magazine="sideline")) == 0
    assert queue.shovel() == 0
    assert numbers_of(queue.fire().messages) == [4]


def test_the_sideline_expires_as_main_does(store, queue):
    queue.load(orders(4))
    queue.sideline(queue.fire(2))
    age(store)

    assert queue.expire() == 4
    assert queue.browse().num_rows == queue.browse(magazine="sideline").num_rows == 0


def test_what_is_in_flight_expires_when_it_comes_back(store, queue):
    queue.load(orders(4))
    firing = queue.fire(2)
    age(store)

    assert queue.expire() == 2
    queue.reload(firing.ids[:1])
    assert queue.expire() == 1
    assert queue.delete(firing) == 1


def test_a_message_can_be_finished_however_old_it_is(store, queue):
    queue.load(orders(2))
    firing = queue.fire()
    age(store)

    assert queue.delete(firing) == 2
    assert expired(queue) == 0


def test_without_an_expiry_nothing_is_ever_too_old(store):
    queue = make_queue(store, message_expiry=None)
    queue.load(orders(2))
    age(store, 1e9)
    before = dump(store)

    assert queue.expire() == 0
    assert dump(store) == before
    assert len(queue.fire()) == 2


def test_nothing_is_changed_where_nothing_is_too_old(store, queue):
    queue.load(orders(2))
    before = dump(store)

    assert queue.expire() == 0
    assert dump(store) == before


def test_what_is_gone_is_reported_and_its_segment_let_go(store, queue):
    queue.load(orders(4_000))
    age(store)

    queue.expire()

    with store.catalog.read() as connection:
        (row,) = reports.read(connection, [queue.info], ["expire"]).to_pylist()
    assert (row["moved"], row["from"], row["to"]) == (4_000, "main", None)
    assert len(store.vacuum(grace=0)) == 1


def test_an_expiry_of_ages_never_overflows(store):
    queue = make_queue(store, message_expiry=1e300)
    queue.load(orders(2))

    assert queue.expire() == 0
    assert len(queue.fire()) == 2
