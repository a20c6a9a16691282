"""Shovel: a part of the sidelined messages, at a rate, and none that failed too often."""

import pyarrow as pa
import pytest

from queue_core import Retry
from queue_core.catalog.records import task_log
from queue_core.catalog.records.task_log import Moves
from queue_core.errors import BadOption, BadSelector
from queue_core.verbs.shovel import Shovelful, shovel
from tests.factories import make_queue, numbers_of, orders


def with_sidelined(store, count, **settings):
    queue = make_queue(store, **settings)
    queue.load(orders(count))
    queue.sideline(queue.fire("all"))
    return queue


def aside(queue):
    return sorted(numbers_of(queue.browse(magazine="sideline")))


# --- which ----------------------------------------------------------------------------------------


def test_a_selector_brings_back_what_it_lets_through(store):
    queue = with_sidelined(store, 20, shards=3, key="customer")

    assert queue.shovel(selector="number % 4 = 1") == 5
    assert sorted(numbers_of(queue.browse())) == [1, 5, 9, 13, 17]
    assert queue.shovel(2, selector="number % 4 = 2") == 2


def test_a_selector_that_cannot_be_understood_is_refused(store):
    with pytest.raises(BadSelector):
        with_sidelined(store, 2).shovel(selector="numbr = 1")


def test_the_settings_limit_a_shovel_that_is_not_told(store):
    queue = with_sidelined(store, 10, shovel_limit=4)

    assert queue.shovel() == 4
    assert queue.shovel(5) == 5


def test_what_has_failed_too_often_stays_for_good(store):
    queue = with_sidelined(store, 3, retry=Retry(attempts=2))

    assert queue.shovel() == 3
    queue.sideline(queue.fire("all"))
    assert queue.shovel() == 0
    assert aside(queue) == [0, 1, 2]


def test_what_was_fired_too_often_stays_for_good(store):
    queue = with_sidelined(store, 3, max_deliveries=2)
    queue.shovel()
    queue.reload(queue.fire(1))
    queue.sideline(queue.fire("all"))

    assert queue.shovel() == 0
    assert aside(queue) == [1, 2]
    assert numbers_of(queue.browse()) == [0], "it was fired too often, and waits for a sweep"


def test_force_passes_over_what_holds_others_back(store):
    queue = with_sidelined(store, 3, retry=Retry(attempts=1))

    assert queue.shovel() == 0
    assert queue.shovel(force=True) == 3


def test_what_comes_aside_during_a_shovel_is_left_to_the_next(store):
    queue = with_sidelined(store, 4)

    def fails_meanwhile(_):
        queue.sideline(queue.fire("all"))

    assert shovel(store.catalog, queue.info, Shovelful(rate=1.0), fails_meanwhile) == 4
    assert aside(queue) == [0, 1, 2, 3]


# --- how fast -------------------------------------------------------------------------------------


def test_a_rate_moves_a_seconds_worth_at_a_time(store):
    queue = with_sidelined(store, 10)
    pauses, there = [], []

    def pause(seconds):
        pauses.append(seconds)
        there.append(len(aside(queue)))

    assert shovel(store.catalog, queue.info, Shovelful(rate=4.0), pause) == 10
    assert pauses == [1.0, 1.0, 0.5]
    assert there == [6, 2, 0]


def test_a_rate_and_a_limit_hold_both(store):
    queue = with_sidelined(store, 10)
    pauses = []

    assert shovel(store.catalog, queue.info, Shovelful(rate=0.5, limit=2), pauses.append) == 2
    assert pauses == [2.0]


@pytest.mark.parametrize("rate", [0, -1.0, "2", float("inf")])
def test_an_impossible_rate_is_refused(store, rate):
    with pytest.raises(BadOption, match="rate="):
        make_queue(store).shovel(rate=rate)


def test_many_shards_are_all_brought_back_by_several_threads(store):
    queue = with_sidelined(store, 200, shards=8, key="customer", shovel_concurrency=3)

    assert queue.shovel() == 200
    assert sorted(numbers_of(queue.browse())) == list(range(200))


# --- all or nothing, and what is told -------------------------------------------------------------


def test_when_putting_back_fails_all_is_in_the_sideline_still(store, monkeypatch):
    queue = with_sidelined(store, 5)

    def fails(*_):
        raise BadOption("no room")

    monkeypatch.setattr(Moves, "record", fails)
    with pytest.raises(BadOption, match="no room"):
        queue.shovel()

    assert aside(queue) == [0, 1, 2, 3, 4]
    assert queue.browse().num_rows == 0


def test_what_was_moved_is_reported(store):
    queue = with_sidelined(store, 30, shards=3, key="customer")

    queue.shovel()

    with store.catalog.read() as connection:
        told = task_log.read(connection, [queue.info], ["shovel"])
    assert pa.compute.sum(told.column("moved")).as_py() == 30
    assert set(zip(*(told.column(n).to_pylist() for n in ("from", "to")), strict=True)) == {
        ("sideline", "main")
    }
