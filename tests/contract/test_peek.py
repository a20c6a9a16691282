"""Peek and browse: messages are looked at, and nothing is taken."""

import pytest

from queue_core.errors import BadOption
from tests.dump import dump
from tests.factories import make_filled, make_queue, numbers_of, orders


@pytest.mark.parametrize("count", [1, 7, 20, 100])
@pytest.mark.parametrize("shards", [1, 4])
def test_a_peek_shows_what_a_firing_would_take(store, count, shards):
    queue = make_filled(store, 60, each=20, shards=shards, key="customer")
    queue.fire(11)

    shown = queue.peek(count)
    firing = queue.fire(count)

    assert shown.column("_message_id").to_pylist() == firing.ids.to_pylist()


def test_a_peek_shows_it_also_where_shards_are_empty_already(store):
    queue = make_filled(store, 30, shards=4, key="customer")
    queue.fire("all", selector="_shard = 0")
    while shown := numbers_of(queue.peek(1)):
        assert numbers_of(queue.fire(1).messages) == shown
    assert len(queue.fire("all")) == 0


def test_each_magazine_is_looked_at_by_itself_and_does_not_change(store):
    queue = make_filled(store, 30)
    queue.sideline(queue.fire(2))
    firing = queue.fire(4)
    before = dump(store)

    # Ten by default, and none that is in flight.
    assert numbers_of(queue.peek()) == list(range(6, 16))
    aside = queue.peek(magazine="sideline")
    assert numbers_of(aside) == numbers_of(queue.browse(magazine="sideline")) == [0, 1]
    assert aside.column("_attempt").to_pylist() == [1, 1]
    seen = queue.browse()
    assert numbers_of(seen) == list(range(2, 30))
    fired_at = seen.column("_fired_at").cast("int64").to_pylist()
    assert fired_at == [firing.ticket.fired_at] * 4 + [None] * 24
    assert dump(store) == before


def test_a_browse_shows_messages_in_the_order_of_their_places(store):
    queue = make_queue(store)
    ids = queue.load(orders(9))
    queue.fire(6)
    queue.reload(ids.take([1, 4]))
    queue.delete(ids.take([0, 3]))
    assert numbers_of(queue.browse()) == [1, 2, 4, 5, 6, 7, 8]


def test_an_empty_queue_shows_an_empty_table_with_all_columns(store):
    queue = make_queue(store)

    for shown in (queue.peek(), queue.browse()):
        assert shown.num_rows == 0
        assert shown.column_names == [
            *queue.schema.names,
            *("_message_id", "_queue", "_shard", "_attempt", "_loaded_at", "_fired_at"),
        ]


def test_an_impossible_count_is_refused(store):
    queue = make_queue(store)
    for count in (0, -1, 2.5, "3", True):
        with pytest.raises(BadOption, match=r"max_messages=|count="):
            queue.peek(count)


@pytest.mark.parametrize("look", ["peek", "browse", "fire"])
def test_an_unknown_magazine_is_refused_with_the_nearest_one(store, look):
    with pytest.raises(BadOption, match="magazine='sidelin'; did you mean 'sideline'"):
        getattr(make_queue(store), look)(magazine="sidelin")
