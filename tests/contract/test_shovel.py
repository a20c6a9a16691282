"""Shovel: sidelined messages come back to the tail of main, all or some, at once or at a rate."""

import pytest

from queue_core import Retry
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import task_log
from queue_core.catalog.records.task_log import Moves
from queue_core.errors import BadOption, BadSelector
from queue_core.verbs import shovel as module
from queue_core.verbs.shovel import Shovelful, shovel
from tests.factories import (
    aside,
    main,
    make_filled,
    make_queue,
    numbers_of,
    orders,
    with_sidelined,
)


def test_shovelled_messages_come_behind_what_is_in_main_and_stay_themselves(store):
    queue = with_sidelined(store, 3, reason="declined")
    ids = queue.browse(magazine="sideline").column("_message_id").to_pylist()
    queue.load(orders(2, 100))
    before = store.catalog.now()

    assert queue.shovel() == 3
    shown = queue.peek()
    assert numbers_of(shown) == [100, 101, 0, 1, 2]
    assert shown.column("_message_id").to_pylist()[2:] == ids
    assert shown.column("_attempt").to_pylist() == [0, 0, 1, 1, 1]
    # They are stamped with the time of the move.
    stamps = shown.column("_fired_at").cast("int64").to_pylist()
    assert stamps[:2] == [None, None]
    assert all(before <= stamp <= store.catalog.now() for stamp in stamps[2:])
    assert aside(queue) == []
    assert queue.shovel() == 0
    queue.delete(queue.fire("all"))
    assert queue.failures().column("reason").to_pylist() == ["declined"] * 3


# --- which ----------------------------------------------------------------------------------------


def test_a_limit_of_a_call_or_of_the_settings_is_kept_over_all_shards(store):
    queue = with_sidelined(store, 40, shards=4, key="customer", shovel_limit=4)
    assert queue.shovel() == 4
    assert queue.shovel(15) == 15
    assert queue.browse().num_rows == 19
    assert queue.shovel(40) == 21


@pytest.mark.each_catalog
@pytest.mark.parametrize("most", [2**63 - 1, 2**63])
def test_a_limit_may_be_more_than_a_queue_can_have(store, most):
    queue = with_sidelined(store, 3, shovel_limit=most)
    assert queue.shovel(most) == 3
    queue.sideline(queue.fire("all"))
    assert queue.shovel() == 3


def test_a_limit_is_kept_if_others_come_back_while_the_messages_are_moved(store, monkeypatch):
    """They were no more than the limit when whole rounds began."""
    monkeypatch.setattr(module, "ROUND_SLICES", 2)
    queue = make_filled(store, 9, each=1, shards=1)
    queue.sideline(queue.fire("all"))
    ids = queue.fire("all", magazine="sideline").ids
    queue.reload(ids[:5])
    late = [ids[5:]]

    def put_back(catalog):
        while late:
            queue.reload(late.pop())

    monkeypatch.setattr(Catalog, "give_way", put_back)

    assert queue.shovel(5) == 5
    assert numbers_of(queue.peek()) == [0, 1, 2, 3, 4]


def test_a_limit_that_is_enough_moves_slices_whole(store, monkeypatch):
    """This costs far less than to choose messages one slice at a time, as capacity needs."""
    monkeypatch.setattr(module, "take_fitting", None)
    queue = with_sidelined(store, 40, shards=4, key="customer")
    assert queue.shovel(40) == 40


@pytest.mark.parametrize("limit", [4, None])
def test_messages_that_interleave_are_moved_in_order_and_those_in_flight_are_left(store, limit):
    queue = with_sidelined(store, 9)
    firing = queue.fire("all", magazine="sideline")
    queue.reload(firing.ids.take([1, 4, 7]))
    queue.reload(firing.ids.take([0, 2, 5]))

    assert queue.shovel(limit) == (limit or 6)
    assert numbers_of(queue.fire("all").messages) == [0, 1, 2, 4, 5, 7][:limit]
    queue.reload(firing)
    assert aside(queue) == ([3, 5, 6, 7, 8] if limit else [3, 6, 8])


def test_a_selector_brings_back_what_it_lets_through(store):
    queue = with_sidelined(store, 20, shards=3, key="customer")
    assert queue.shovel(selector="number % 4 = 1") == 5
    assert main(queue) == [1, 5, 9, 13, 17]
    assert queue.shovel(2, selector="number % 4 = 2") == 2
    with pytest.raises(BadSelector):
        queue.shovel(selector="numbr = 1")


def test_what_has_failed_too_often_stays_unless_it_is_forced(store):
    queue = with_sidelined(store, 3, retry=Retry(attempts=2))
    assert queue.shovel() == 3
    queue.sideline(queue.fire("all"))
    assert queue.shovel() == 0
    assert aside(queue) == [0, 1, 2]
    assert queue.shovel(force=True) == 3


def test_what_was_fired_too_often_stays_for_good(store):
    queue = with_sidelined(store, 3, max_deliveries=2)
    queue.shovel()
    queue.reload(queue.fire(1))
    queue.sideline(queue.fire("all"))
    assert queue.shovel() == 0
    assert aside(queue) == [1, 2]
    assert numbers_of(queue.browse()) == [0], "it was fired too often, and waits for a sweep"


def test_what_comes_aside_during_a_shovel_is_left_to_the_next(store, monkeypatch):
    queue = with_sidelined(store, 4)

    def fails_meanwhile(_):
        queue.sideline(queue.fire("all"))

    monkeypatch.setattr("queue_core.catalog.transact.sleep", fails_meanwhile)
    assert shovel(store.catalog, queue.info, Shovelful(rate=1.0)) == 4
    assert aside(queue) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "wrong",
    [{"limit": n} for n in (0, -1, 1.5, "2")] + [{"rate": r} for r in (0, -1.0, "2", 1e999)],
)
def test_an_impossible_limit_or_rate_is_refused(store, wrong):
    with pytest.raises(BadOption, match=f"{next(iter(wrong))}="):
        make_queue(store).shovel(**wrong)


# --- how fast -------------------------------------------------------------------------------------


def test_a_rate_moves_a_seconds_worth_at_a_time(store, monkeypatch):
    queue = with_sidelined(store, 10)
    pauses, there = [], []

    def pause(seconds):
        pauses.append(seconds)
        there.append(len(aside(queue)))

    monkeypatch.setattr("queue_core.catalog.transact.sleep", pause)
    assert shovel(store.catalog, queue.info, Shovelful(rate=4.0, limit=9)) == 9
    assert (pauses, there) == ([1.0, 1.0], [6, 2])
    queue.sideline(queue.fire("all"))
    assert shovel(store.catalog, queue.info, Shovelful(rate=0.5, limit=2)) == 2
    assert pauses[2:] == [2.0]


def test_a_shovel_with_a_rate_keeps_a_bound_that_is_set_while_it_runs(store, monkeypatch):
    queue = with_sidelined(store, 6)

    def meanwhile(seconds):
        queue.admin.change_settings(max_size=3)

    monkeypatch.setattr("queue_core.catalog.transact.sleep", meanwhile)
    assert queue.shovel(rate=2) == 3
    assert len(aside(queue)) == 3


@pytest.mark.each_catalog
def test_many_shards_are_all_brought_back_by_several_threads_and_reported(store, monkeypatch):
    # Few slices would come back in one round.
    monkeypatch.setattr("queue_core.verbs.shovel.ROUND_SLICES", 4)
    queue = with_sidelined(store, 200, shards=8, key="customer", shovel_concurrency=3)
    assert queue.shovel() == 200
    assert main(queue) == list(range(200))
    with store.catalog.read() as connection:
        told = task_log.read(connection, [queue.info], ["shovel"]).to_pylist()
    assert sum(row["moved"] for row in told) == 200
    assert {(row["from"], row["to"]) for row in told} == {("sideline", "main")}


def test_when_putting_back_fails_all_is_in_the_sideline_still(store, monkeypatch):
    queue = with_sidelined(store, 5)

    def fails(*_):
        raise BadOption("no room")

    monkeypatch.setattr(Moves, "record", fails)
    with pytest.raises(BadOption, match="no room"):
        queue.shovel()

    assert aside(queue) == [0, 1, 2, 3, 4]
    assert queue.browse().num_rows == 0
