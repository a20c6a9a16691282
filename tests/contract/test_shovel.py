"""Shovel: sidelined messages come back to the tail of main."""

import pytest

from queue_core.catalog.database import Catalog
from queue_core.errors import BadOption
from queue_core.verbs import shovel as module
from tests.factories import make_queue, numbers_of, orders


def with_sidelined(store, count, **settings):
    queue = make_queue(store, **settings)
    queue.load(orders(count))
    queue.sideline(queue.fire("all"))
    return queue


def test_shovelled_messages_come_behind_what_is_in_main(store):
    queue = with_sidelined(store, 3)
    queue.load(orders(2, 100))

    assert queue.shovel() == 3
    assert numbers_of(queue.fire("all").messages) == [100, 101, 0, 1, 2]
    assert queue.browse(magazine="sideline").num_rows == 0


def test_shovelled_messages_keep_their_ids_and_attempts(store):
    queue = with_sidelined(store, 3)
    ids = queue.browse(magazine="sideline").column("_message_id").to_pylist()

    queue.shovel()

    messages = queue.peek()
    assert messages.column("_message_id").to_pylist() == ids
    assert messages.column("_attempt").to_pylist() == [1, 1, 1]


def test_a_shovel_stamps_what_it_moves_with_the_time(store):
    queue = with_sidelined(store, 1)
    before = store.catalog.now()

    queue.shovel()

    (stamp,) = queue.peek().column("_fired_at").cast("int64").to_pylist()
    assert before <= stamp <= store.catalog.now()


def test_no_more_than_the_limit_is_moved_in_order(store):
    queue = with_sidelined(store, 10)

    assert queue.shovel(4) == 4
    assert numbers_of(queue.peek()) == [0, 1, 2, 3]
    assert numbers_of(queue.browse(magazine="sideline")) == [4, 5, 6, 7, 8, 9]


def test_a_limit_is_kept_over_all_shards(store):
    queue = with_sidelined(store, 40, shards=4, key="customer")

    assert queue.shovel(15) == 15
    assert queue.browse().num_rows == 15
    assert queue.shovel() == 25


def test_a_limit_is_kept_if_others_come_back_while_the_messages_are_moved(store, monkeypatch):
    """They were no more than the limit when whole rounds began."""
    monkeypatch.setattr(module, "ROUND_SLICES", 2)
    queue = make_queue(store, shards=1)
    for number in range(9):
        queue.load(orders(1, number))
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


def test_messages_that_interleave_are_moved_in_order(store):
    queue = with_sidelined(store, 9)
    ids = queue.fire("all", magazine="sideline").ids
    queue.reload(ids.take([1, 4, 7]))
    queue.reload(ids.take([0, 2, 5]))

    assert queue.shovel(4) == 4
    assert numbers_of(queue.fire("all").messages) == [0, 1, 2, 4]
    assert numbers_of(queue.fire("all", magazine="sideline").messages) == [5, 7]


def test_messages_that_interleave_come_back_whole_in_their_order(store):
    queue = with_sidelined(store, 9)
    ids = queue.fire("all", magazine="sideline").ids
    queue.reload(ids.take([1, 4, 7]))
    queue.reload(ids.take([0, 2, 5]))

    queue.shovel()

    assert numbers_of(queue.fire("all").messages) == [0, 1, 2, 4, 5, 7]


def test_what_is_in_flight_is_left_in_the_sideline(store):
    queue = with_sidelined(store, 5)
    firing = queue.fire(2, magazine="sideline")

    assert queue.shovel() == 3
    queue.reload(firing)
    assert numbers_of(queue.browse(magazine="sideline")) == [0, 1]


def test_shovelling_an_empty_sideline_moves_nothing(store):
    assert make_queue(store).shovel() == 0


def test_why_messages_failed_is_still_told_afterwards(store):
    queue = make_queue(store)
    queue.load(orders(1))
    queue.sideline(queue.fire("all"), reason="declined")

    queue.shovel()
    queue.delete(queue.fire("all"))

    assert queue.failures().column("reason").to_pylist() == ["declined"]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "2"])
def test_an_impossible_limit_is_refused(store, limit):
    with pytest.raises(BadOption, match="limit="):
        make_queue(store).shovel(limit)
