"""Fire: the next messages, each shard in order, all shards in turn, for one consumer alone."""

import time
from collections import Counter
from functools import partial
from itertools import chain
from math import ceil

import pyarrow.compute as pc
import pytest

from queue_core.errors import BadOption
from queue_core.selection import quotas
from tests.dump import dump
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.waiting import PATIENCE, Caller, without_blind_looks

pytestmark = pytest.mark.each_catalog


def shards_of(firing):
    return Counter(firing.messages.column("_shard").to_pylist())


def fill(store, shards, each, *, loads=1, **settings):
    """A queue with the same number of messages in every shard, from *loads* loads each."""
    queue = make_queue(store, shards=shards, **settings)
    for load in range(loads):
        for shard in range(shards):
            first = (shard * loads + load) * each // loads
            queue.load(orders(each // loads, first))
    return queue


def test_messages_are_fired_in_the_order_in_which_they_were_loaded(store):
    queue = make_queue(store)
    consumer = store.consumer("me")
    for first in range(0, 50, 10):
        queue.load(orders(10, first))

    firings = [queue.fire(7, consumer=consumer) for _ in range(8)]

    assert [len(firing) for firing in firings] == [7] * 7 + [1]
    assert list(chain(*(numbers_of(firing.messages) for firing in firings))) == list(range(50))
    assert [firing.ticket.number for firing in firings] == list(range(1, 9))


def test_a_firing_shows_what_it_took(store):
    queue = make_queue(store)
    ids = queue.load(orders(3))
    before = store.catalog.now()

    firing = queue.fire("all")

    assert len(firing) == 3
    assert firing.ids.to_pylist() == ids.to_pylist()
    assert firing.ticket.messages == 3
    assert before <= firing.ticket.fired_at <= store.catalog.now()
    assert set(firing.messages.column("_fired_at").cast("int64").to_pylist()) == {
        firing.ticket.fired_at
    }
    assert firing.messages.column("_queue").unique().to_pylist() == ["orders"]
    assert repr(firing).startswith(
        f"<Firing of 3 messages, ticket {firing.ticket.number} of python:"
    )


def test_an_empty_queue_gives_an_empty_firing_and_changes_nothing(store):
    queue = make_queue(store)
    store.consumer()
    before = dump(store)

    firing = queue.fire("all")

    assert len(firing) == 0
    assert firing.ticket is None
    assert firing.messages.column_names[:3] == ["number", "customer", "amount"]
    assert queue.delete(firing) == 0
    assert repr(firing) == "<Firing of nothing>"
    assert dump(store) == before


def test_what_is_fired_is_not_fired_again(store):
    queue = make_filled(store, 10)
    assert len(queue.fire(4)) == 4
    assert numbers_of(queue.fire("all").messages) == [4, 5, 6, 7, 8, 9]
    assert len(queue.fire("all")) == 0


# --- limits ---------------------------------------------------------------------------------------


def test_a_firing_takes_the_next_message_unless_there_is_a_limit(store):
    queue = make_filled(store, 10)

    assert numbers_of(queue.fire().messages) == [0]
    assert numbers_of(queue.get_and_keep().messages) == [1]
    assert numbers_of(queue.fire(selector="number % 2 = 1").messages) == [3]
    assert numbers_of(queue.fire(order_by="number DESC").messages) == [9]
    assert numbers_of(queue.fire(2).messages) == [2, 4]
    assert numbers_of(queue.get_and_keep("all").messages) == [5, 6, 7, 8]


def test_a_limit_of_bytes_alone_takes_as_many_as_fit(store):
    queue = make_filled(store, 10)
    assert numbers_of(queue.fire(max_bytes=1).messages) == [0]
    assert numbers_of(queue.fire("all", max_bytes=1).messages) == [1]
    assert numbers_of(queue.fire(max_bytes=10**6).messages) == list(range(2, 10))


@pytest.mark.parametrize("how", [{}, {"order_by": "number DESC"}, {"order": "global"}], ids=str)
def test_a_limit_may_be_more_than_a_queue_can_have(store, how):
    queue = make_queue(store, log="1 day")
    reader = store.subscribe("reader", to="orders", selector="number > 0")
    queue.load(orders(3))
    assert sorted(numbers_of(queue.fire(2**63, **how).messages)) == [0, 1, 2]
    assert sorted(numbers_of(reader.fire(2**63, **how).messages)) == [1, 2]


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize("limit", [1, 3, 8, 20, 79, 80, 1000])
def test_a_limit_of_messages_is_used_up_by_the_shards_that_have_enough(store, limit):
    queue = fill(store, shards=8, each=10)
    firing = queue.fire(limit)
    assert len(firing) == min(limit, 80)
    counts = shards_of(firing)
    assert len(counts) == min(ceil(limit / 10), 8)
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize(("limits", "comes_in"), [((2, 6), 0), ((10, 30), 0), ((1, 1), 1)])
def test_every_shard_gets_its_turn_whatever_the_limits(store, limits, comes_in):
    """Neither two consumers with limits of their own nor loads push back the same shards."""
    queue = fill(store, shards=8, each=20 * sum(limits))
    seen = Counter()

    for number in range(40):
        queue.load(orders(comes_in, number))
        seen += shards_of(queue.fire(limits[number % 2]))

    assert set(seen) == set(range(8))
    assert max(limits) > 1 or max(seen.values()) - min(seen.values()) <= 1


def test_a_shard_whose_messages_cannot_be_fired_keeps_no_others_back(store):
    queue = fill(store, shards=4, each=100, max_deliveries=1)
    # They come first in their shard, which counts them, but nobody may see them again.
    queue.reload(queue.fire(90))
    assert [len(queue.fire(50)) for _ in range(7)] == [50] * 6 + [10]


def test_the_sideline_gives_evenly(store):
    """Many of its messages may not be due, so a shard with enough may give none."""
    queue = fill(store, shards=8, each=10)
    queue.sideline(queue.fire("all"))
    firing = queue.fire(20, magazine="sideline")
    assert sorted(shards_of(firing).values()) == [2, 2, 2, 2, 3, 3, 3, 3]


def test_a_limit_of_bytes_is_kept_and_used(store, inlined):
    queue = make_filled(store, 1000)
    (size,) = store.view("slices").column("bytes").to_pylist()

    firing = queue.fire(max_bytes=size // 4)

    assert len(firing) == pytest.approx(250, abs=2)
    assert numbers_of(firing.messages) == list(range(len(firing)))
    assert len(queue.fire(10, max_bytes=size)) == 10
    assert len(queue.fire(700, max_bytes=size // 100)) <= 10


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize(
    ("settings", "how"),
    [
        ({}, {}),
        ({}, {"selector": "number >= 0"}),
        ({}, {"order_by": "number DESC"}),
        ({}, {"order": "global"}),
        ({"fair_by": "customer"}, {}),
        ({"fair_by": "customer"}, {"selector": "number >= 0"}),
    ],
    ids=str,
)
def test_a_firing_says_whether_its_limit_of_bytes_has_left_messages(store, settings, how):
    queue = make_queue(store, shards=2, **settings)
    queue.load(orders(500))
    queue.load(orders(500, 500))
    size = sum(store.view("slices").column("bytes").to_pylist())

    assert not queue.fire(10, max_bytes=size, **how).full
    cut = queue.fire(900, max_bytes=size // 10, **how)
    assert cut.full
    assert 1 <= len(cut) < 150
    rest = queue.fire(1000, max_bytes=size, **how)
    assert not rest.full
    assert len(rest) == 990 - len(cut)


def test_a_limit_that_makes_no_sense_is_refused_and_takes_nothing(store):
    queue = make_filled(store, 10)
    before = dump(store)

    for name, values in {
        "max_messages": [0, -1, 1.5, "10", "every", True],
        "max_bytes": [0, -5],
        "magazine": ["sidelines", None],
        "timeout": ["soon", float("nan")],
    }.items():
        for value in values:
            with pytest.raises(BadOption, match=f"{name}="):
                queue.fire(**{name: value})
    assert dump(store) == before


@pytest.mark.parametrize("limit", ["all", 1000])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_queue_of_many_slices_is_fired_in_order_part_by_part(store, limit, most, monkeypatch):
    """One firing takes no more slices than a driver can plan, and none out of order."""
    monkeypatch.setattr(quotas, "MAX_SLICES", most)
    queue = make_filled(store, 12, each=3)
    firings = []
    while firing := queue.fire("all"):
        firings.append(firing)
    for firing in firings:
        # Those in the middle first, so that the others are slices with gaps around them.
        queue.reload(firing.ids.take([1]) if len(firing) == 3 else firing)
        queue.reload(firing)
    fired = []

    while firing := queue.fire(limit):
        assert store.view("slices").filter(pc.field("state") == "fired").num_rows <= most
        fired += numbers_of(firing.messages)
        queue.delete(firing)

    assert fired == list(range(12))


# --- waiting --------------------------------------------------------------------------------------


def test_waiting_ends_with_a_message_or_when_the_time_is_over(store):
    queue = make_queue(store)
    start = time.monotonic()

    assert len(queue.fire("all", timeout=0.3)) == 0
    assert 0.3 <= time.monotonic() - start < PATIENCE / 2
    queue.load(orders(1))
    assert len(queue.fire("all", timeout=PATIENCE)) == 1
    assert time.monotonic() - start < PATIENCE / 2


@pytest.mark.parametrize(
    ("verb", "how", "arrival"),
    [
        ("fire", {}, "load"),
        ("fire", {}, "reload"),
        ("fire", {}, "shovel"),
        ("fire", {"selector": "number = 1"}, "load"),
        ("get_and_keep", {}, "load"),
    ],
)
def test_without_a_timeout_a_firing_waits_until_there_is_a_message(
    store, address, monkeypatch, verb, how, arrival
):
    """Only what comes in wakes it."""
    without_blind_looks(monkeypatch)
    queue = make_queue(store)
    if arrival != "load":
        queue.load(orders(1, 1))
        firing = queue.fire("all")
    if arrival == "shovel":
        queue.sideline(firing)
    arrive = {
        "load": lambda: queue.load(orders(1, 1)),
        "reload": lambda: queue.reload(firing),
        "shovel": queue.shovel,
    }[arrival]

    with type(store)(address) as other:
        waiting = Caller(lambda: getattr(other.queue("orders"), verb)(timeout=None, **how))
        time.sleep(0.2)
        assert waiting.is_alive()
        arrive()
        assert numbers_of(waiting.done().messages) == [1]


def test_many_consumers_share_one_slice_without_missing_anything(store):
    """Each takes a few of what another one holds for the length of a transaction."""
    queue = make_filled(store, 400)

    def consume(name):
        taken, consumer = [], store.consumer(name)
        while firing := queue.fire(10, consumer=consumer):
            taken.append(numbers_of(firing.messages))
            queue.delete(firing)
        return taken

    callers = [Caller(partial(consume, f"consumer-{number}")) for number in range(4)]
    taken = list(chain(*(caller.done() for caller in callers)))
    # A firing may find nothing while the others hold the messages for long.
    taken += consume("consumer-4")

    assert sorted(chain(*taken)) == list(range(400))
    assert all(numbers == sorted(numbers) for numbers in taken)
