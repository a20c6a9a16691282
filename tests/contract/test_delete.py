"""Delete: what is fired is finished, and gone."""

import numpy as np
import pyarrow as pa
import pytest

from queue_core.errors import BadOutcome
from queue_core.segments import stager
from tests.books import leftover_files
from tests.dump import dump
from tests.factories import make_queue, numbers_of, orders


def left(queue):
    return numbers_of(queue.browse())


def test_a_whole_firing_is_deleted(store):
    queue = make_queue(store)
    queue.load(orders(10))
    firing = queue.fire(4)

    assert queue.delete(firing) == 4
    assert left(queue) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "form",
    [
        lambda ids: ids,
        lambda ids: ids.combine_chunks(),
        lambda ids: ids.to_numpy(),
        lambda ids: ids.to_pylist(),
        lambda ids: set(ids.to_pylist()),
        lambda ids: reversed(ids.to_pylist()),
    ],
    ids=["chunked", "arrow", "numpy", "list", "set", "iterator"],
)
def test_some_of_a_firing_are_deleted_by_their_ids(store, form):
    queue = make_queue(store)
    queue.load(orders(10))
    ids = queue.fire().ids

    assert queue.delete(form(ids.filter(pa.array([number % 3 == 0 for number in range(10)])))) == 4
    assert left(queue) == [1, 2, 4, 5, 7, 8]


def test_deleting_twice_counts_once(store):
    queue = make_queue(store)
    queue.load(orders(10))
    firing = queue.fire()

    assert queue.delete(firing.ids[:5]) == 5
    before = dump(store)
    assert queue.delete(firing.ids[:5]) == 0
    assert dump(store) == before
    assert queue.delete(firing) == 5


def test_what_is_not_fired_is_left_alone(store):
    queue = make_queue(store)
    ids = queue.load(orders(10))
    queue.fire(5)

    assert queue.delete(ids) == 5
    assert left(queue) == [5, 6, 7, 8, 9]


def test_what_was_reloaded_meanwhile_is_left_alone(store):
    queue = make_queue(store)
    queue.load(orders(4))
    firing = queue.fire()
    queue.reload(firing.ids[:2])

    assert queue.delete(firing) == 2
    assert left(queue) == [0, 1]


def test_a_firing_deletes_only_what_its_own_consumer_holds(store):
    queue = make_queue(store)
    queue.load(orders(4))
    first = queue.fire(consumer=store.consumer("first"))
    queue.reload(first)
    second = queue.fire(consumer=store.consumer("second"))

    assert queue.delete(first) == 0
    assert queue.delete(second) == 4


def test_deleting_nothing_is_fine(store):
    queue = make_queue(store)
    queue.load(orders(1))
    before = dump(store)

    assert queue.delete([]) == 0
    assert queue.delete(np.array([], dtype=np.int64)) == 0
    assert dump(store) == before


@pytest.mark.parametrize("inline", [True, False])
def test_a_segment_goes_with_its_last_message(store, inline, monkeypatch):
    monkeypatch.setattr(stager, "INLINE_BYTES", (1 << 20) if inline else 0)
    queue = make_queue(store)
    queue.load(orders(3))
    firing = queue.fire()

    queue.delete(firing.ids[:2])
    assert store.view("slices").num_rows == 1
    queue.delete(firing.ids[2:])

    assert store.view("slices").num_rows == 0
    assert len(leftover_files(store)) == (0 if inline else 1)
    assert store.view("queues").column("bytes").to_pylist() == [0]


def test_deleting_many_single_messages_of_many_segments(store):
    queue = make_queue(store, shards=4, key="customer")
    for first in range(0, 1000, 50):
        queue.load(orders(50, first))
    firing = queue.fire()
    odd = pa.array([number % 2 == 1 for number in numbers_of(firing.messages)])

    assert queue.delete(firing.ids.filter(odd)) == 500
    assert sorted(left(queue)) == list(range(0, 1000, 2))


@pytest.mark.parametrize("verb", ["delete", "sideline", "reload"])
@pytest.mark.parametrize(
    "foreign",
    ["another queue", "no segment yet", "row beyond", "segment zero", "negative"],
)
def test_the_id_of_a_foreign_message_is_refused_and_nothing_is_settled(store, verb, foreign):
    queue, other = make_queue(store), make_queue(store, "payments")
    queue.load(orders(3))
    (theirs, *_) = other.load(orders(3)).to_pylist()
    ids = queue.fire().ids.to_pylist()
    strange = {
        "another queue": theirs,
        "no segment yet": 1000 << 20,
        "row beyond": ids[0] + 3,
        "segment zero": 5,
        "negative": -1,
    }[foreign]
    before = dump(store)

    with pytest.raises(BadOutcome, match=str(strange)):
        getattr(queue, verb)([*ids, strange])
    assert dump(store) == before
