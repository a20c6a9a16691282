"""A browser sees every message once, in order, and takes none."""

import threading

import pytest
from sqlalchemy import update

from queue_core import ConsumerPool
from queue_core.catalog import holder_tables
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.errors import CatalogUnavailable, ConsumerFenced
from queue_core.segments.reader import read_table
from queue_core.selection.request import FireRequest
from queue_core.values.model import Magazine, Ticket, TicketRange
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.browse import browse_next, browsed
from tests.contract.pools import Recorder
from tests.dump import dump
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.waiting import PATIENCE


@pytest.fixture
def browser(store):
    return store.consumer("browser", beats=True)


def look(store, queue, consumer, limit=None, **wanted):
    """The next ticket of a browser; None when there is nothing new."""
    what = FireRequest(queue_ids=(queue.info.id,), max_messages=limit, **wanted)
    found = browse_next(store.catalog, consumer, what)
    return None if found is None else found[0]


def shown(store, queue, ticket, magazine=Magazine.MAIN):
    uri = store.storage.uri
    reading = browsed(store.catalog, uri, [queue.info], magazine, TicketRange.of(ticket))
    return numbers_of(read_table(reading))


def all_shown(store, queue, consumer, limit=None):
    numbers = []
    while ticket := look(store, queue, consumer, limit):
        numbers.append(shown(store, queue, ticket))
    return numbers


@pytest.mark.parametrize("limit", [None, 1, 7, 100])
def test_every_message_is_seen_once(store, browser, limit):
    queue = make_filled(store, 30, each=10, shards=3, key="customer")
    queue.fire(3)
    before = dump(store)

    seen = all_shown(store, queue, browser, limit)

    assert sorted(number for numbers in seen for number in numbers) == list(range(30))
    assert all(len(numbers) <= (limit or 30) for numbers in seen)
    # Nothing is taken.
    after = dump(store)
    assert {name for name in after if after[name] != before[name]} == {"tickets", "consumers"}


def test_messages_are_seen_in_order(store, browser):
    queue = make_filled(store, 10)
    ticket = look(store, queue, browser, 4)
    queue.load(orders(10, 10))

    assert all_shown(store, queue, browser, 6) == [
        [*range(4, 10)],
        [*range(10, 16)],
        [*range(16, 20)],
    ]
    # A ticket shows the same as often as it is asked.
    assert shown(store, queue, ticket) == shown(store, queue, ticket) == [0, 1, 2, 3]


def test_what_others_hold_is_seen_and_what_is_gone_is_not(store, browser):
    queue = make_filled(store, 6)
    queue.delete(queue.fire(2))
    queue.fire(2)
    assert all_shown(store, queue, browser) == [[2, 3, 4, 5]]

    # What comes later is seen later.
    queue.load(orders(2, 6))
    queue.reload(queue.fire("all"))
    assert all_shown(store, queue, browser) == [[6, 7]]


def test_a_pool_that_browses_shows_what_is_there_when_it_looks(store):
    queue = make_filled(store, 3)
    recorder = Recorder()
    recorder.open.clear()
    with ConsumerPool(store, "orders", recorder, browse=True, batch=1) as browser:
        recorder.wait()
        # Others are quicker.
        assert queue.delete(queue.fire("all")) == 3
        queue.load(orders(1, 3))
        recorder.open.set()
        assert browser.drain(PATIENCE)
    assert recorder.numbers == [0, 3]


def test_a_pool_shows_messages_though_the_commit_of_their_ticket_lost_its_answer(
    store, monkeypatch
):
    """They were passed over, since the ticket says that they were shown."""
    make_queue(store, shards=2).load(orders(5))
    write, lost = store.catalog.write, threading.Event()

    def cut(work, **how):
        found = write(work, **how)
        is_ticket = isinstance(found, tuple) and isinstance(found[0], Ticket)
        if is_ticket and not lost.is_set():
            lost.set()
            raise CatalogUnavailable("the connection is lost")
        return found

    monkeypatch.setattr(store.catalog, "write", cut)
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, browse=True) as browser:
        assert lost.wait(PATIENCE)
        assert browser.drain(PATIENCE)
    assert recorder.numbers == [0, 1, 2, 3, 4]


def test_the_sideline_can_be_browsed_too(store, browser):
    queue = make_filled(store, 6)
    queue.sideline(queue.fire(2))
    ticket = look(store, queue, browser, magazine=Magazine.SIDELINE)
    assert shown(store, queue, ticket, Magazine.SIDELINE) == [0, 1]


def test_a_horizon_ends_what_is_seen(store, browser):
    queue = make_filled(store, 3)
    until = Horizon.now(store.catalog, [queue.info.id], Magazine.MAIN)
    queue.load(orders(3, 3))

    ticket = look(store, queue, browser, horizon=until)

    assert shown(store, queue, ticket) == [0, 1, 2]
    assert look(store, queue, browser, horizon=until) is None


def test_a_new_life_goes_on_where_the_last_one_ended(store, browser):
    queue = make_filled(store, 10)
    first, ticket = look(store, queue, browser, 4), look(store, queue, browser, 3)
    # A browser keeps its last ticket, which says where it stands.
    acknowledge(store.catalog, browser, first.number, delete=False)
    # Even if it was dead for long: its tickets hold nothing that would have to be given back.
    long_ago = update(holder_tables.consumers).values(heartbeat_at=0)
    store.catalog.write(lambda connection: connection.execute(long_ago))
    assert store.admin.recover() == 0
    assert shown(store, queue, ticket) == [4, 5, 6]

    reborn = store.consumer("browser", beats=True)

    assert all_shown(store, queue, reborn) == [[7, 8, 9]]
    queue.load(orders(1, 10))
    with pytest.raises(ConsumerFenced):
        look(store, queue, browser)
