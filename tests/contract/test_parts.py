"""Side tasks look at a large queue part by part, and still find all that there is to do."""

import random

import pytest
from sqlalchemy import select, update

from benchmarks.growth import run_due
from queue_core.catalog.slices import parts, rewritable
from queue_core.catalog.tables import slices
from queue_core.upkeep.tasks import compaction
from queue_core.upkeep.tasks import expire as expire_task
from queue_core.values.model import Magazine
from tests.books import audit
from tests.contract.small_parts import small_parts
from tests.factories import make_filled, numbers_of, orders

LOADS = 160
PART = 40
#: A part finds what is somewhere with a probability of at least an eighth.
ROUNDS = 150


@pytest.fixture(autouse=True)
def _few_slices(monkeypatch):
    small_parts(monkeypatch, PART)
    # The same in each run of the tests.
    monkeypatch.setattr(parts, "random", random.Random(7))


def change(store, statement):
    store.catalog.write(lambda connection: connection.execute(statement))


def ids(store):
    with store.catalog.read() as connection:
        return connection.scalars(select(slices.c.id).order_by(slices.c.position)).all()


@pytest.fixture
def queue(store):
    return make_filled(store, LOADS, each=1, shards=1, message_expiry=10_000.0)


def places_of_a_part(connection, queue, count):
    begin = parts.random_place(connection, queue, Magazine.MAIN)
    place = (slices.c.shard, slices.c.position)
    part = parts.slices_from(queue, Magazine.MAIN, begin, count, *place)
    return {tuple(row) for row in connection.execute(part)}


def test_parts_reach_every_slice_of_every_shard(store):
    queue = make_filled(store, LOADS, each=10, shards=3, key="number")
    with store.catalog.read() as connection:
        place = (slices.c.shard, slices.c.position)
        there = [tuple(row) for row in connection.execute(select(*place).order_by(*place))]
        found = [places_of_a_part(connection, queue.info, 10) for _ in range(ROUNDS)]

    sizes = [len(part) for part in found]
    assert max(sizes) == 10
    # All are whole but those that begin near the end of the last shard.
    assert sizes.count(10) > ROUNDS // 3
    assert there == sorted(set().union(*found))


def until_found(store, task, queue):
    """Run a task until it has changed something."""
    return next((count for _ in range(ROUNDS) if (count := run_due(store, task, queue))), 0)


@pytest.mark.parametrize("at", [0, 70, LOADS - 1])
def test_one_old_message_expires_wherever_it_waits(store, queue, at):
    old = update(slices).where(slices.c.id == ids(store)[at])
    change(store, old.values(loaded_at=slices.c.loaded_at - 20_000 * 10**6))

    assert until_found(store, expire_task, queue) == 1
    assert numbers_of(queue.browse()) == [n for n in range(LOADS) if n != at]
    audit(store)


def test_the_beginning_of_a_shard_expires_in_the_first_round(store, queue):
    run_due(store, expire_task, queue)
    old = update(slices).where(slices.c.id == ids(store)[0])
    change(store, old.values(loaded_at=slices.c.loaded_at - 20_000 * 10**6))

    assert run_due(store, expire_task, queue) == 1


@pytest.mark.parametrize("at", [0, 70, LOADS - 20])
def test_small_slices_are_merged_wherever_they_are(store, queue, monkeypatch, at):
    monkeypatch.setattr(rewritable, "NEIGHBOURS", 16)
    small = ids(store)[at : at + 20]
    change(store, update(slices).where(slices.c.id.not_in(small)).values(bytes=1 << 30))

    assert until_found(store, compaction, queue) == 20
    assert len(ids(store)) == LOADS - 19
    assert numbers_of(queue.browse()) == list(range(LOADS))
    audit(store)


def test_small_slices_that_cannot_be_merged_are_looked_at_once(store, queue, monkeypatch):
    """Those of the sideline were fired at different times, and are found with each part of main."""
    monkeypatch.setattr(rewritable, "NEIGHBOURS", 16)
    change(store, update(slices).values(bytes=1 << 30))
    for number in range(20):
        queue.load(orders(1, LOADS + number))
        queue.choose(selector=f"number = {LOADS + number}").sideline()
    apart = slices.c.magazine == int(Magazine.SIDELINE)
    change(store, update(slices).where(apart).values(fired_at=slices.c.id))
    # All of the sideline is found each time.
    monkeypatch.setattr(parts.random, "randint", lambda low, high: low)
    looked = []
    place = parts.random_place
    monkeypatch.setattr(parts, "random_place", lambda *given: looked.append(given) or place(*given))

    assert run_due(store, compaction, queue) == 0
    # For small slices, and for files of which little is left.
    assert [magazine for _, _, magazine, _ in looked] == [
        magazine for magazine in Magazine for _ in range(2)
    ]


def test_what_is_mostly_dead_is_rewritten_wherever_it_is(store, queue, monkeypatch, in_files):
    queue.load(orders(100, LOADS))
    for number in range(LOADS):
        queue.load(orders(1, LOADS + 100 + number))
    # No slice is small, so that only the one of which little is left is worth it.
    monkeypatch.setattr(rewritable, "SMALL_BYTES", 0)
    queue.choose(selector=f"number >= {LOADS} AND number < {LOADS + 95}").delete()

    assert until_found(store, compaction, queue) == 5
    assert len(numbers_of(queue.browse())) == 2 * LOADS + 5
    audit(store)
