"""The name ``{queue}_SIDELINE``: it opens the sideline of a queue. Source: IgnisMQ."""

import pytest

from queue_core import ConsumerPool
from queue_core.errors import BadName, BadOption, NoSuchQueue
from queue_core.values.model import Magazine
from queue_core.values.names import SIDELINE_SUFFIX
from tests.command_line import answer
from tests.dump import dump
from tests.factories import make_filled, make_queue, numbers_of, orders


@pytest.fixture
def queue(store):
    """A queue with messages 0 and 1 in the sideline, and 2 and 3 in main."""
    queue = make_filled(store, 4)
    queue.sideline(queue.fire(2))
    return queue


def test_the_name_opens_the_sideline(store, queue):
    sideline = store.queue("orders_SIDELINE")

    assert repr(sideline).startswith("<Sideline 'orders_SIDELINE', ")
    assert numbers_of(sideline.peek()) == numbers_of(sideline.browse()) == [0, 1]
    firing = sideline.fire("all")
    assert numbers_of(firing.messages) == [0, 1]
    assert sideline.delete(firing.ids[:1]) == 1
    assert sideline.reload(firing.ids[1:]) == 1
    assert sideline.refresh() is sideline
    assert sideline.shovel() == 1
    assert numbers_of(queue.browse()) == [2, 3, 1]


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("load", [orders(1)]),
        ("request", [1]),
        ("get_and_keep", []),
        ("reset", []),
        ("sweep", [0]),
        ("admin", []),
        ("replay", ["copy"]),
        ("clone", ["copy"]),
    ],
)
def test_verbs_of_the_whole_queue_are_refused(store, queue, verb, given):
    before = dump(store)

    with pytest.raises(BadOption) as error:
        getattr(store.queue("orders_SIDELINE"), verb)(*given)

    assert str(error.value) == (
        f"queue 'orders_SIDELINE' is the sideline of queue 'orders', and {verb} needs the whole "
        "queue; use the name 'orders'"
    )
    assert dump(store) == before


def test_a_pool_handles_the_sideline(store, queue):
    handled = []

    def handler(message):
        handled.append(message["number"])
        return True

    with ConsumerPool(store, "orders_SIDELINE", handler, concurrency=1, tasks=()) as pool:
        assert pool.drain(60)

    assert handled == [0, 1]
    assert numbers_of(queue.browse()) == [2, 3]
    with pytest.raises(BadOption, match="'orders' is named more than once"):
        ConsumerPool(store, ["orders", "orders_SIDELINE"], handler)


def test_views_of_sidelines_are_of_the_name_too(store, queue, ignis):
    make_queue(store, "refunds").load(orders(1))
    store.queue("refunds").sideline(store.queue("refunds").fire())
    for view in ("failures", "sideline"):
        assert store.view(view, "orders_SIDELINE").equals(store.view(view, "orders"))
        assert store.view(view, "orders_SIDELINE").num_rows == 2
    assert store.queue("orders_SIDELINE").failures().num_rows == 2
    for command in ("failures", "retries"):
        shown = answer(ignis("--json", command, "orders_SIDELINE"))
        assert [row["queue"] for row in shown] == ["orders"] * 2


def test_no_new_queue_gets_such_a_name(store, queue):
    with pytest.raises(BadName, match="'some_SIDELINE': names that end in _SIDELINE are reserved"):
        make_queue(store, "some_SIDELINE")
    assert store.queues() == ["orders"]


def test_a_queue_that_really_has_such_a_name_comes_first(store, monkeypatch):
    """It was created before ignis knew these names."""
    with monkeypatch.context() as before:
        before.setattr("queue_core.catalog.queue_changes.SIDELINE_SUFFIX", "no name ends so")
        make_queue(store, "orders_SIDELINE").load(orders(1, 7))
    make_queue(store).load(orders(1))

    found = store.queue("orders_SIDELINE")

    assert found.opened.only is None
    assert numbers_of(found.browse()) == [7]
    assert make_queue(store, "orders_SIDELINE", exist_ok=True).name == found.name


def test_a_sideline_of_no_queue_is_not_found(store, queue):
    for name in ("refunds_SIDELINE", "orders_SIDELINE_SIDELINE", "orders_sideline"):
        with pytest.raises(NoSuchQueue, match=name):
            store.queue(name)
    with pytest.raises(NoSuchQueue, match="only queue 'orders' with its sideline; use 'orders' h"):
        store.view("slices", "orders_SIDELINE")
    with pytest.raises(BadName):
        store.queue(SIDELINE_SUFFIX)
    longest = "q" * 128
    make_queue(store, longest)
    assert store.queue(longest + SIDELINE_SUFFIX).opened.only is Magazine.SIDELINE
