"""Messages that come back although no handler has seen them: no delivery, and still suspects."""

import threading

import pyarrow as pa
import pytest

from queue_core import Breaker, ConsumerPool, batch_handler, limit
from queue_core.errors import BadOutcome, CatalogUnavailable, DamagedCatalog
from queue_core.pool.breaking import PoolBreaker
from queue_core.pool.held import HeldBytes
from queue_core.pool.output import PoolOutcomes
from queue_core.pool.source import AcquiringSource
from queue_core.selection.request import Demand
from queue_core.values.ids import IdSet
from queue_core.values.outcomes import Settlement
from tests.books import audit
from tests.contract.lost import fire, losses, start
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.waiting import until


def deliveries(store):
    """How many messages were delivered how often."""
    found = {}
    for row in store.view("slices").to_pylist():
        found[row["deliveries"]] = found.get(row["deliveries"], 0) + row["messages"]
    return found


def test_a_settlement_tells_messages_that_no_handler_has_seen(store):
    queue = make_filled(store, 4)
    fire(queue, start(store), 4)
    till = start(store)
    ids = IdSet.of(queue.fire(4, consumer=till).ids)
    assert deliveries(store) == {0: 2, 1: 2}

    assert queue.settle(Settlement(reloaded=ids, unhandled=ids), till) == 2

    assert deliveries(store) == {0: 4}
    assert losses(store) == {(1, 4): 4}
    assert numbers_of(queue.browse()) == [0, 1, 2, 3]
    audit(store)


def source_of(queue, consumer, held, **how):
    """What the workers of a pool take from."""
    return AcquiringSource(
        queue,
        consumer,
        lambda names: ["_message_id", "number"],
        Demand(),
        prefetch=True,
        on_available=lambda: None,
        held=held,
        **how,
    )


def handle_four(source, taken):
    """Settle the last batch that was taken, and take another one."""
    settled = taken[-1].messages.select(["_message_id"]).append_column("outcome", ["delete"] * 4)
    source.settle(PoolOutcomes(pa.Table.from_batches([settled])))
    taken.append(source.take(4))


def fire_ahead(store, source):
    """Take and settle batches of four messages until others were fired with one; return all."""
    taken = [source.take(4)]
    while deliveries(store)[1] == 4:
        # Each firing takes more, while they follow one another at once.
        handle_four(source, taken)
    return taken


@pytest.mark.parametrize("error", [CatalogUnavailable, DamagedCatalog])
def test_what_a_pool_has_fired_ahead_comes_back_as_it_was(store, monkeypatch, error):
    queue = make_filled(store, 600)
    fire(queue, start(store), 400)
    till, held = start(store), HeldBytes()
    source = source_of(queue, till, held)
    taken = fire_ahead(store, source)

    def fails(*_):
        raise error("the catalog is away")

    monkeypatch.setattr(queue, "settle", fails)
    with pytest.raises(error):
        source.give_back()
    monkeypatch.undo()
    # Nothing was lost by that.
    source.give_back()

    assert deliveries(store).keys() == {0, 1}
    assert deliveries(store)[1] == 4
    assert losses(store)[1, 400] == 400 - 4 * (len(taken) - 1)
    assert held.used == sum(batch.bytes for batch in taken)


def test_a_pool_gives_back_what_it_has_fired_ahead_when_its_breaker_opens(store):
    queue = make_filled(store, 600)
    breaker = PoolBreaker(store.catalog, Breaker(of=4), "shop", "till", 1, lambda: None)
    source = source_of(queue, start(store), HeldBytes(), breaker=breaker)
    taken = fire_ahead(store, source)
    breaker.gate.note(4, 4)

    assert source.take(4) is None

    assert deliveries(store) == {0: 600 - 4 * len(taken), 1: 4}


def test_a_pool_fires_nothing_ahead_of_a_limit(store):
    queue = make_filled(store, 600, limits=limit(in_flight=500))
    source = source_of(queue, start(store), HeldBytes())
    taken = [source.take(4)]
    for _ in range(5):
        handle_four(source, taken)
        assert deliveries(store)[1] == 4


def test_a_pool_takes_nothing_of_other_queues_while_suspects_wait_for_empty_hands(store):
    queue, other = make_queue(store), make_queue(store, "other")
    queue.load(orders(1))
    other.load(orders(2, 1))
    fire(queue, start(store, "dead"), 1)
    till, held = start(store), HeldBytes()
    source, busy = source_of(queue, till, held), source_of(other, till, held)
    taken = busy.take(1)
    start(store, "dead")

    assert source.take(1) is None
    assert busy.take(1) is None
    other.delete(taken.messages.column("_message_id"), consumer=till)
    assert len(source.take(1)) == 1


@pytest.mark.parametrize("in_batches", [False, True])
def test_messages_that_a_breaker_holds_back_are_not_delivered(store, in_batches):
    queue = make_queue(store, retry=None, max_deliveries=2)
    queue.load(orders(60, customers=2))
    seen = set()

    def fails(message):
        seen.add(message["number"])
        raise ConnectionError("503")

    def fails_on(batch):
        for number in batch.column("number").to_pylist():
            seen.add(number)
        raise ConnectionError("503")

    handler = batch_handler(fails_on) if in_batches else fails
    breaker = Breaker(of=3, pause=60.0, max_pause=60.0)
    with ConsumerPool(store, "orders", handler, breaker=breaker, batch=3, tasks=[]):
        until(lambda: len(seen) >= 2)

    waiting = set(numbers_of(queue.browse()))
    assert waiting == set(range(60)) - seen
    aside = len(seen)
    assert deliveries(store) == {0: 60 - aside, 1: aside}


def test_messages_after_the_one_that_a_handler_is_refused_for_are_not_delivered(store):
    make_filled(store, 10, retry=None)
    pool = ConsumerPool(store, "orders", lambda message: None, batch=10, tasks=[], concurrency=1)
    with pytest.raises(BadOutcome, match="returned None"), pool:
        pool.drain(60)

    assert deliveries(store) == {0: 9, 1: 1}


def test_a_message_whose_call_was_given_up_counts_as_delivered(store):
    make_filled(store, 3, retry=None)
    begun, go_on = threading.Event(), threading.Event()

    def waits(message):
        begun.set()
        go_on.wait(30)
        return True

    pool = ConsumerPool(store, "orders", waits, batch=3, tasks=[], concurrency=1).start()
    assert begun.wait(60)
    threading.Timer(1.0, go_on.set).start()
    pool.stop(timeout=0.1)

    assert deliveries(store) == {0: 2, 1: 1}
