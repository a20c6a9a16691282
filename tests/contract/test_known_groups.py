"""A firing from a queue with groups reads little of a long backlog, and finds the same messages."""

import random

import pytest

from queue_core.selection import known_groups
from queue_core.selection.scan import SliceScan
from tests.contract.callers import Seller
from tests.factories import make_queue, numbers_of, orders

pytestmark = pytest.mark.each_catalog


@pytest.fixture
def queue(store):
    return make_queue(store, shards=2, key="customer", group="customer", retry=None)


def load(queue, number, *customers):
    rows = orders(len(customers), number).to_pylist()
    queue.load([row | {"customer": each} for row, each in zip(rows, customers, strict=True)])


def to_be_fired(queue):
    return numbers_of(queue.peek(10_000))


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2))])
def test_what_is_known_hides_nothing(queue, monkeypatch, seed):
    """
    Messages come and come back in any way, behind many of two groups that are in flight.

    Each look is compared with one at everything.
    """
    passed, rest = 0, known_groups.KnownGroups.rest

    def counted(*taken):
        nonlocal passed
        behind = rest(*taken)
        passed += behind is not None
        return behind

    monkeypatch.setattr(known_groups.KnownGroups, "rest", counted)
    rng = random.Random(seed)
    for number in range(0, 80, 2):
        load(queue, number, "a", "b")
    queue.fire("all")
    held, number = [], 80
    for _ in range(200):
        act = rng.choice(("load", "load", "load", "fire", "delete", "sideline", "reload", "shovel"))
        if act == "load":
            names = [f"c{rng.randrange(40)}" for _ in range(rng.randrange(1, 4))]
            load(queue, number, *names)
            number += len(names)
        elif act == "fire":
            held += queue.fire(rng.choice((1, 3, "all"))).ids.to_pylist()
        elif act == "shovel":
            queue.shovel()
        elif held:
            rng.shuffle(held)
            some, held = held[:2], held[2:]
            getattr(queue, act)(some)
        looks = [to_be_fired(queue)]
        with monkeypatch.context() as nothing:
            nothing.setattr(known_groups, "SECONDS", 0.0)
            looks.append(to_be_fired(queue))
        assert looks[0] == looks[1], act
        if number > 150 and passed > 50:
            break
    assert number > 150
    assert passed > 50


def test_a_firing_reads_the_front_of_a_backlog(queue, monkeypatch):
    read, table = [], SliceScan.table

    def noted(scan, taken, columns):
        read.extend(taken)
        return table(scan, taken, columns)

    monkeypatch.setattr(SliceScan, "table", noted)
    for number in range(0, 400, 2):
        load(queue, number, "a", "b")
    first = queue.fire("all")
    assert sorted(numbers_of(first.messages)) == [0, 1]
    assert len(read) >= 400

    read.clear()
    assert len(queue.fire("all")) == 0
    # Only the groups of what is in flight.
    assert len(read) <= 4

    load(queue, 400, "c")
    assert numbers_of(queue.fire("all").messages) == [400]
    queue.delete(first)
    assert sorted(numbers_of(queue.fire("all").messages)) == [2, 3]
    assert len(read) <= 50


def test_a_message_of_a_new_group_that_a_compaction_joins_with_older_ones_comes_first(
    store, monkeypatch
):
    monkeypatch.setattr(known_groups, "SECONDS", 60.0)
    queue = make_queue(store, group="customer")
    for number in range(100):
        load(queue, number, "a")
    assert numbers_of(queue.fire("all").messages) == [0]
    load(queue, 100, "b")
    assert queue.admin.compact() == 100
    load(queue, 101, "b")
    assert numbers_of(queue.fire("all").messages) == [100]


def test_what_only_a_transaction_that_is_rolled_back_has_seen_is_not_known(store, monkeypatch):
    monkeypatch.setattr(known_groups, "SECONDS", 60.0)
    queue = make_queue(store, group="customer")
    for number in range(40):
        load(queue, number, "a")
    load(queue, 40, "b")
    load(queue, 41, "a")
    with Seller(store) as caller, caller.connected() as connection:
        within = queue.within(connection)
        for expected in ([0, 40], [1]):
            firing = within.fire("all")
            assert numbers_of(firing.messages) == expected
            within.delete(firing)
        connection.rollback()
    load(queue, 42, "b")
    assert numbers_of(queue.fire("all").messages) == [0, 40]


def test_a_firing_of_fewer_messages_than_it_may_take_has_left_none(queue):
    """A pool does not look again before something has changed."""
    load(queue, 0, "a", "b", "a", "b")
    assert queue.fire(1).more
    assert not queue.fire(5).more
    assert queue.peek(5).num_rows == 0
