"""Publish once: a repeated batch of a streaming query is loaded once."""

import json
import threading
from functools import partial

import pyarrow as pa
import pytest

from queue_core.errors import BadOption, PublicationRefused, StaleCheckpoint
from queue_core.values.model import Batch
from queue_core.values.names import of_query
from queue_core.values.outcomes import Settlement
from queue_core.verbs.settle import settle
from queue_core.waiting.smart.load import of_staged
from tests.dump import dump
from tests.factories import (
    make_batch,
    make_queue,
    make_staged,
    numbers_of,
    orders,
    publish,
    publish_once,
)
from tests.waiting import all_at_once

#: The tickets of a batch, of a consumer of another store.
T5, T6 = (json.dumps({"consumer": "elsewhere", "ticket": ticket}) for ticket in (5, 6))


def staged(queue, first=0, count=10):
    return make_staged(queue, orders(count, first))


def once(queue, segments, number, query="query-1", **known):
    batch = make_batch(segments, number, query, **known)
    return publish_once(queue.store.catalog, queue.store.storage, queue.info, segments, batch)


@pytest.fixture
def queue(store, inlined):
    return make_queue(store)


def test_the_same_batch_again_is_left_out(queue):
    """Its files may be the very same: a driver may not learn of its commit."""
    segments = staged(queue)

    assert once(queue, segments, 0)
    assert not once(queue, segments, 0)
    assert not once(queue, staged(queue), 0)
    assert once(queue, staged(queue, 10), 1)

    assert numbers_of(queue.fire("all").messages) == list(range(20))


def test_an_older_batch_with_rows_is_refused(store, queue):
    """Spark repeats only the last one, so these rows are new, and their source would drop them."""
    for batch in range(3):
        once(queue, staged(queue, 10 * batch), batch)
    segments, before = staged(queue, 10), dump(store)

    with pytest.raises(StaleCheckpoint, match=r"'orders': batch 1 .* has 10 rows.* batch 2"):
        once(queue, segments, 1)
    assert dump(store) == before


#: What is known of the last batch and of a batch of its number, and whether they are the same.
REPEATED = {
    "as many rows": ({}, {}, True),
    "the same rows": ({"digest": 1}, {"digest": 1}, True),
    "one unknown": ({"digest": 1}, {}, True),
    "the same entry, other values": (
        {"digest": 1, "entry": "a"},
        {"digest": 2, "entry": "a"},
        True,
    ),
    "the entry cannot be read any more": ({"digest": 1, "entry": "a"}, {"digest": 1}, True),
    "planned again from the same tickets": (
        {"digest": 1, "entry": "a", "tickets": T5},
        {"digest": 1, "entry": "b", "tickets": T5},
        True,
    ),
    "other rows": ({"digest": 1}, {"digest": 2}, False),
    "another entry": ({"digest": 1, "entry": "a"}, {"digest": 1, "entry": "b"}, False),
    "other tickets": (
        {"digest": 1, "entry": "a", "tickets": T5},
        {"digest": 1, "entry": "b", "tickets": T6},
        False,
    ),
    "the same tickets with other rows": (
        {"digest": 1, "entry": "a", "tickets": T5},
        {"digest": 2, "entry": "b", "tickets": T5},
        False,
    ),
}


@pytest.mark.parametrize(("first", "again", "is_same"), REPEATED.values(), ids=REPEATED)
def test_the_last_batch_is_known_again_and_other_rows_under_its_number_are_refused(
    store, queue, first, again, is_same
):
    once(queue, staged(queue), 4, **first)
    segments = staged(queue)
    if is_same:
        assert not once(queue, segments, 4, **again)
    else:
        before = dump(store)
        with pytest.raises(StaleCheckpoint, match="of that number with other rows"):
            once(queue, segments, 4, **again)
        assert dump(store) == before
    assert len(queue.fire("all")) == 10


def test_a_batch_without_rows_counts_too(queue):
    assert once(queue, [], 0)
    assert not once(queue, [], 0)
    with pytest.raises(StaleCheckpoint):
        once(queue, staged(queue), 0)
    assert once(queue, staged(queue), 1)
    assert not once(queue, [], 0), "an older one does no harm"
    assert not once(queue, [], 1)
    with pytest.raises(StaleCheckpoint):
        once(queue, staged(queue, count=11), 1)
    assert len(queue.fire("all")) == 10


@pytest.mark.parametrize("number", [0, 1])
def test_a_batch_without_rows_of_another_consumer_is_refused(queue, number):
    """The checkpoint lost all of its entries: a later batch could have rows that are here."""
    other = json.dumps({"consumer": "anew", "ticket": 0})
    once(queue, staged(queue), 0, tickets=T5, entry="a")
    once(queue, staged(queue, 10), 1, tickets=T6, entry="b")

    assert not once(queue, [], number, tickets=T5, entry="c")
    with pytest.raises(StaleCheckpoint, match="went back"):
        once(queue, [], number, tickets=other, entry="d")


def test_batches_count_per_query_and_queue(store, queue):
    other = make_queue(store, "other")

    assert once(queue, staged(queue), 0, "query-1")
    assert once(queue, staged(queue, 10), 0, "query-2")
    assert once(other, staged(other, 20), 0, "query-1")
    assert len(queue.fire("all")) == 20
    assert len(other.fire("all")) == 10


@pytest.mark.parametrize("policy", [None, "latest"])
@pytest.mark.parametrize("entry", ["a", None], ids="entry {}".format)
def test_a_batch_that_was_published_to_another_queue_is_refused(store, queue, entry, policy):
    """The sink's option changed before Spark had noted that the batch is committed."""
    other = make_queue(store, "other", key="customer", policy=policy)
    once(queue, staged(queue), 4, digest=1, entry=entry)
    segments, before = staged(other), dump(store)
    removed = {segment.location for segment in segments}

    def elsewhere(number, segments, **known):
        batch = make_batch(segments, number, "query-1", **known)
        where = (store.catalog, store.storage, other.info)
        return publish_once(*where, segments, batch, smart=of_staged(*where, segments))

    with pytest.raises(BadOption, match=r"'other': batch 4 .* published to queue 'orders'"):
        elsewhere(4, segments, digest=1, entry=entry)
    after = dump(store)
    assert set(before.pop("storage")) - set(after.pop("storage")) <= removed
    assert after == before

    assert not once(queue, staged(queue), 4, digest=1, entry=entry)
    assert elsewhere(5, staged(other, 10), digest=2, entry=entry and "b")
    assert len(queue.fire("all")) == len(other.fire("all")) == 10


def test_another_batch_of_that_number_goes_into_another_queue(store, queue):
    """A copy of a checkpoint goes on by itself."""
    other = make_queue(store, "other")
    once(queue, staged(queue), 4, digest=1, entry="a")

    assert once(other, staged(other), 4, digest=1, entry="b")


def test_a_refused_batch_names_the_consumers_that_hold_its_messages(queue):
    name, another = of_query(), of_query()
    held = "\n".join(
        json.dumps({"consumer": each, "ticket": 1}) for each in (name, another, "copier")
    )
    once(queue, staged(queue), 4, digest=1, entry="a")

    with pytest.raises(StaleCheckpoint) as refused:
        once(queue, staged(queue), 4, digest=2, entry="b", tickets=held)
    text = str(refused.value)
    assert f"`ignis sweep QUEUE --consumer {name}`" in text
    assert f"`ignis sweep QUEUE --consumer {another}`" in text
    assert "copier" not in text
    # The consumer that made the recorded batch may hold later ones.
    assert "for each QUEUE that the query reads" in text
    with pytest.raises(StaleCheckpoint) as refused:
        once(queue, staged(queue), 4, digest=2, entry="b", tickets=T5)
    assert "sweep" not in str(refused.value)


def test_one_of_several_drivers_with_one_checkpoint_publishes(queue):
    outcomes, barrier = [], threading.Barrier(4)
    segments = [staged(queue) for _ in range(4)]

    def drive(number):
        barrier.wait()
        outcomes.append(once(queue, segments[number], 5))

    all_at_once(*(partial(drive, number) for number in range(4)))

    assert sorted(outcomes) == [False, False, False, True]
    assert numbers_of(queue.fire("all").messages) == list(range(10))


def test_files_cannot_be_published_twice(store, queue):
    segments = staged(queue)
    publish(store.catalog, store.storage, queue.info, segments)
    if segments[0].location is None:
        return  # inlined bytes are a copy, and no file is shared
    before = dump(store)

    with pytest.raises(PublicationRefused, match=segments[0].location):
        publish(store.catalog, store.storage, queue.info, segments)
    assert dump(store) == before


def test_a_batch_is_settled_once_too(store, queue):
    queue.load(orders(4))
    ids = queue.fire("all").ids
    settlement = Settlement.sideline(Settlement.of(described(ids)).deleted, "failed")

    batch = Batch("query-1", 3, 4, digest=1)
    first = settle(store.catalog, [queue.info], settlement, batch=batch)
    queue.shovel()
    queue.fire("all")
    again = settle(store.catalog, [queue.info], settlement, batch=batch)

    assert (first, again) == (4, 0)
    assert queue.failures().num_rows == 4


@pytest.mark.parametrize("batch", [Batch("query-1", 3, 4, digest=2), Batch("query-1", 2, 4)])
def test_outcomes_under_a_used_number_are_refused(store, queue, batch):
    """They would be left out, and their messages in flight."""
    queue.load(orders(4))
    settlement = Settlement.of(described(queue.fire("all").ids))
    settle(store.catalog, [queue.info], Settlement(), batch=Batch("query-1", 3, 4, digest=1))

    with pytest.raises(StaleCheckpoint, match="'orders'"):
        settle(store.catalog, [queue.info], settlement, batch=batch)
    assert settle(store.catalog, [queue.info], settlement) == 4


def described(ids):
    return pa.table({"_message_id": ids, "outcome": ["delete"] * len(ids)})
