"""Statements: a verb needs no more of them for many shards, and reads no more than it takes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from benchmarks.fabricated import make, multiply
from queue_core import limit
from queue_core.catalog import queues
from queue_core.catalog.slices import slices
from queue_core.catalog.slices.conditions import fireable
from queue_core.catalog.tables import slices as slice_rows
from queue_core.queue import Queue
from queue_core.selection.request import FireRequest
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, Slice
from queue_core.values.outcomes import Settlement
from queue_core.verbs.fire import fire
from tests.dump import load_earlier
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.statements import counted, transactions

pytestmark = pytest.mark.each_catalog

#: A verb, and what happens first.
VERBS: dict[str, Callable[[Queue], Callable[[], Any]]] = {
    "load": lambda queue: lambda: queue.load(orders(200)),
    "fire": lambda queue: lambda: queue.fire(200),
    "fire some bytes": lambda queue: lambda: queue.fire(200, max_bytes=1 << 20),
    "reload": lambda queue: _with(queue.fire(200), queue.reload),
    "sideline": lambda queue: _with(queue.fire(200), queue.sideline),
    "shovel": lambda queue: _then(lambda: queue.shovel(200), queue.sideline(queue.fire(200))),
    "delete": lambda queue: _with(queue.fire(200), queue.delete),
}


def _with(firing: Any, act: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: act(firing)


def _then(act: Callable[[], Any], _: Any) -> Callable[[], Any]:
    return act


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_needs_no_more_statements_for_more_shards(store, verb):
    counts = []
    for shards in (2, 32):
        queue = make_filled(store, 1000, f"of{shards}", shards=shards, key="number")
        act = VERBS[verb](queue)
        with counted(store) as statements:
            act()
        counts.append(len(statements))

    assert counts[1] <= counts[0] + 2 <= 40


def test_a_firing_after_a_change_by_another_process_costs_more_only_once(store):
    queue = make_filled(store, 100)
    queue.fire()
    counts = []
    for attempt in range(4):
        if attempt == 1:
            store.queue(queue.name).admin.change_settings(sweep_after=3600)
        with counted(store) as statements:
            queue.fire()
        counts.append(len(statements))

    assert counts[0] == counts[2] == counts[3] < counts[1]


@pytest.mark.parametrize("shards", [1, 32, 512])
def test_a_shovel_of_a_thousand_messages_needs_few_statements(store, shards):
    queue = make_filled(store, 1000, shards=shards, key="number")
    queue.sideline(queue.fire(1000))
    with counted(store) as statements:
        assert queue.shovel() == 1000
    assert len(statements) <= 20


def test_a_limit_of_bytes_takes_no_statement(store):
    """A pool has one in each of its firings."""
    counts = []
    for limits in ({}, {"max_bytes": 1 << 20}, {"max_bytes": 1000}):
        queue = make_filled(store, 1000, f"of{len(counts)}", shards=8, key="number")
        # The first firing of a process registers its consumer.
        queue.fire(1)
        with counted(store) as statements:
            queue.fire(200, **limits)
        counts.append(len(statements))

    assert counts[0] == counts[1] >= counts[2]


def test_a_limit_costs_only_the_queues_that_have_it(store):
    """As many with a name as without one, and one more at a settlement, to wake others."""
    named, unnamed = (
        limit(name="crm", in_flight=900, per_second=900),
        limit(in_flight=900, per_second=900),
    )
    counts = []
    for limits in (None, unnamed, named):
        queue = make_filled(store, 1000, f"of{len(counts)}", shards=4, limits=limits)
        queue.fire(1)
        with counted(store) as fired:
            firing = queue.fire(200)
        with counted(store) as settled:
            queue.delete(firing)
        counts.append((len(fired), len(settled)))

    free, alone, shared = counts
    assert shared == (alone[0], alone[1] + 1)
    # To read and to lock the bucket, and to count what is in flight, and to write the bucket.
    assert alone[0] - free[0] <= 9


def test_a_firing_from_many_queues_needs_no_more_statements(store):
    """Of a thousand queues with two kinds of settings, which one statement can state."""
    queue = make(store, "one", 1, shards=1, message_expiry=90_000.0)
    multiply(store, queue, 1_102)
    store.queue("one-7").admin.change_settings(message_expiry=3600.0, max_deliveries=5)
    load_earlier(store, 7200)
    with store.catalog.read() as connection:
        infos = queues.find_all(connection)
    counts = []
    for some in (infos[:2], infos[2:]):
        request = FireRequest(
            queue_ids=tuple(info.id for info in some), rules=fireable(some, Magazine.MAIN)
        )
        with counted(store) as statements:
            ticket = fire(store.catalog, store.consumer("reader"), request).ticket
        assert ticket is not None
        # The message of one queue has expired.
        assert ticket.messages == len(some) - ("one-7" in {info.name for info in some})
        counts.append(len(statements))

    assert counts[1] <= counts[0] + 2


def test_a_firing_reads_only_the_slices_that_it_needs(store, monkeypatch):
    """Of many slices with many messages each, a few are enough for many messages."""
    queue = make_filled(store, 6000, each=100, shards=2)
    read = []

    def counting(**values: Any) -> Slice:
        read.append(values["id"])
        return Slice(**values)

    monkeypatch.setattr(slices, "Slice", counting)

    firing = queue.fire(400)

    assert len(firing) == 400
    # Of each shard the first page; then the slices of the ticket.
    assert len(read) <= 30

    # Now it knows how many messages the slices have: of each shard, two, and one after them.
    read.clear()
    assert len(queue.fire(20)) == 20
    assert len(read) <= 10


def test_a_firing_that_may_wait_reads_the_settings_in_its_first_transaction(store):
    """One looks, and one fires, which also plans to read the messages."""
    queue = make_filled(store, 10)
    queue.fire(1)

    with transactions(store) as begun:
        queue.fire(1, timeout=10)
    assert len(begun) == 2

    elsewhere = store.queue("orders")
    elsewhere.admin.change_settings(max_deliveries=7)
    with transactions(store) as begun:
        assert len(queue.fire(1, timeout=10)) == 1
    assert len(begun) == 3


@pytest.mark.parametrize("slices", [64, 65])
def test_a_firing_of_many_slices_plans_to_read_them_after_its_transaction(store, slices):
    """Others wait for its end. Each load is a slice."""
    queue = make_filled(store, slices + 1, each=1)
    queue.fire(1)

    with transactions(store) as begun:
        firing = queue.fire(slices)

    assert numbers_of(firing.messages) == list(range(1, slices + 1))
    assert len(begun) == (2 if slices <= 64 else 3)


def test_a_firing_and_its_settlement_need_few_statements(store):
    queue = make_queue(store)
    queue.load(orders(1000))
    queue.load(orders(1000))
    queue.settle(_some_fail(queue.fire(1000)))

    with counted(store) as statements:
        firing = queue.fire(1000, timeout=10)
        assert queue.settle(_some_fail(firing), firing) == 1000

    assert len(statements) <= 22


def _some_fail(firing: Any) -> Settlement:
    ids = firing.ids.to_numpy()
    return Settlement(deleted=IdSet.of(ids[10:]), sidelined=IdSet.of(ids[:10]))


def test_a_firing_from_very_many_queues_has_few_parameters(store):
    """Two kinds of settings, and more queues than a statement may have parameters."""
    info = make_queue(store).info
    kinds = [
        info.settings.changed({"message_expiry": 60.0 * number, "max_deliveries": number})
        for number in (1, 2)
    ]
    many = [replace(info, id=number, settings=kinds[number % 2]) for number in range(70_000)]
    query = select(slice_rows.c.id).where(*fireable(many, Magazine.MAIN))
    with store.catalog.read() as connection:
        assert connection.execute(query).all() == []
