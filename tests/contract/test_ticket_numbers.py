"""Consumers reserve numbers of tickets, and no number is used twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select, update

from queue_core import Store
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.holders.ticket_numbers import BLOCK
from queue_core.support import faults
from tests.books import audit
from tests.factories import make_filled, planned
from tests.forks import in_a_fork
from tests.storages import ONLY_POSTGRESQL

pytestmark = ONLY_POSTGRESQL


@pytest.fixture
def queue(store):
    return make_filled(store, 3 * BLOCK, each=1, shards=2)


def last_ticket(store):
    with store.catalog.read() as connection:
        return connection.scalar(select(consumers.c.last_ticket))


def change(store, **values):
    store.catalog.write(lambda connection: connection.execute(update(consumers).values(values)))


def tickets(queue, consumer, count):
    """The numbers of the tickets of some firings of one message each."""
    return [queue.fire(1, consumer=consumer).ticket.number for _ in range(count)]


def test_a_block_serves_many_firings(store, queue):
    consumer = store.consumer("one")

    assert tickets(queue, consumer, BLOCK + 1) == list(range(1, BLOCK + 2))
    assert last_ticket(store) == 2 * BLOCK
    audit(store)


def test_a_transaction_of_a_caller_reserves_nothing(store, queue):
    """After its rollback, another process may have reserved the same block."""
    consumer, used = store.consumer("one"), []
    with store.catalog.engine.connect() as connection:
        within = queue.within(connection)
        lost = tickets(within, consumer, 2)
        connection.rollback()
        for _ in range(2):
            used += tickets(queue, consumer, 2) + tickets(within, consumer, 2)
            connection.commit()

    assert lost == [1, 2]
    assert used == sorted(set(used))


def test_a_reservation_that_is_rolled_back_is_none(store, queue):
    """Another store reserves the same block then."""
    consumer = store.consumer("one")
    faults.arm("fire.before_commit=raise")
    with pytest.raises(faults.InjectedFault):
        queue.fire(1, consumer=consumer)
    with Store(store.address) as other:
        its = tickets(other.queue(queue.name), consumer, 2)

    assert its == [1, 2]
    assert tickets(queue, consumer, 2) == [BLOCK + 1, BLOCK + 2]


def test_a_ticket_with_a_row_ends_the_block(store, queue):
    """Its number is the highest one, and those that follow must be higher."""
    consumer = store.consumer("one")
    first = tickets(queue, consumer, 2)
    of_query = planned(store, queue, consumer, 1).number
    then = tickets(queue, consumer, 2)

    assert (first, of_query, then) == ([1, 2], BLOCK + 1, [BLOCK + 2, BLOCK + 3])


def test_numbers_that_were_acknowledged_are_not_used(store, queue):
    """As when a consumer was taken for dead, and its tickets for those of an earlier life."""
    consumer = store.consumer("one")
    tickets(queue, consumer, 2)
    change(store, acknowledged=BLOCK)

    assert tickets(queue, consumer, 1) == [BLOCK + 1]


def test_another_life_begins_after_the_block(store, queue):
    tickets(queue, store.consumer("one"), 2)

    assert tickets(queue, store.consumer("one"), 1) == [BLOCK + 1]


def test_a_catalog_of_an_earlier_time_ends_the_block(store, queue):
    consumer = store.consumer("one")
    tickets(queue, consumer, BLOCK + 2)
    change(store, last_ticket=BLOCK)

    assert tickets(queue, consumer, 1) == [BLOCK + 1]


def test_two_stores_of_a_process_share_no_number(store, queue):
    consumer = store.consumer("one")
    with Store(store.address) as other:
        its = other.queue(queue.name)
        used = [n for _ in range(5) for q in (queue, its) for n in tickets(q, consumer, 1)]

    assert used == sorted(set(used))


def test_threads_share_no_number(store, queue):
    consumer = store.consumer("one")
    with ThreadPoolExecutor(4) as threads:
        used = list(threads.map(lambda _: tickets(queue, consumer, 10), range(4)))

    numbers = [number for each in used for number in each]
    assert len(set(numbers)) == len(numbers) == 40
    audit(store)


def test_a_forked_process_has_no_block(store, queue):
    consumer = store.consumer("one")
    tickets(queue, consumer, 2)
    of_child = in_a_fork(lambda: tickets(queue, consumer, 2))

    assert of_child == [BLOCK + 1, BLOCK + 2]
    assert tickets(queue, consumer, 1) == [2 * BLOCK + 1]
