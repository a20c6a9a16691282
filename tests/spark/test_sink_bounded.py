"""A bounded queue as a sink: the commit waits for room, fails, or drops the oldest."""

import threading

import pytest
from pyspark.errors import StreamingQueryException

from tests.books import audit
from tests.factories import make_queue, numbers_of, orders
from tests.spark.rig import PATIENCE, counts, finish, wait_until
from tests.waiting import standing


def bounded(rig, size, **settings):
    return make_queue(rig.store, "copy", max_size=size, **settings)


def test_a_commit_waits_until_there_is_room(rig):
    rig.orders(20)
    copy = bounded(rig, 10)
    query = rig.sink(rig.source(maxMessagesPerTrigger=10), "copy")
    wait_until(lambda: bool(standing(rig.store)), query)
    assert numbers_of(copy.browse()) == list(range(10))

    copy.delete(copy.fire("all"))

    finish(query)
    assert numbers_of(copy.fire("all").messages) == list(range(10, 20))


def test_time_out_fails_the_query_and_the_batch_comes_once_later(rig):
    rig.orders(20)
    copy = bounded(rig, 10)
    stream = rig.source(maxMessagesPerTrigger=10)
    with pytest.raises(StreamingQueryException, match=r"queue 'copy' is full \(max_size=10\): it"):
        finish(rig.sink(stream, "copy", timeout="200ms"))
    assert numbers_of(copy.browse()) == list(range(10))
    copy.delete(copy.fire("all"))

    finish(rig.sink(stream, "copy", timeout="200ms"))

    assert numbers_of(copy.browse()) == list(range(10, 20))
    assert counts(copy, "loaded") == [20]
    audit(rig.store)


def test_a_batch_that_is_there_already_waits_for_no_room(rig):
    rig.orders(10)
    copy = bounded(rig, 10)
    finish(rig.sink(rig.source(), "copy", trigger={"once": True}))
    rig.forget_commit()

    finish(rig.sink(rig.source(), "copy", trigger={"once": True}, timeout="0"))

    assert counts(copy, "loaded") == [10]


def test_a_commit_can_drop_the_oldest(rig):
    rig.orders(30)
    copy = bounded(rig, 10)
    finish(rig.sink(rig.source(maxMessagesPerTrigger=8), "copy", onFull="ring"))
    assert numbers_of(copy.browse()) == list(range(20, 30))
    assert counts(copy, "loaded", "dropped") == [30, 20]


def test_a_batch_that_can_never_fit_says_so_at_once(rig):
    rig.orders(20)
    bounded(rig, 10)
    message = "never has room for a load of 20 messages, with max_size=10; .* maxMessagesPerTrigger"
    with pytest.raises(StreamingQueryException, match=message):
        finish(rig.sink(rig.source(), "copy"))


def test_a_rendezvous_is_no_sink(rig):
    rig.orders(1)
    bounded(rig, 0)
    with pytest.raises(StreamingQueryException, match=r"is a rendezvous \(max_size=0\)"):
        finish(rig.sink(rig.source(), "copy"))


@pytest.mark.nightly
def test_a_stream_meets_the_loads_of_a_rendezvous(rig):
    meeting = make_queue(rig.store, max_size=0)
    got, met = [], []
    query = rig.each(
        rig.source(),
        lambda rows, _: got.extend(row.number for row in rows.collect()),
        trigger={"processingTime": "0 seconds"},
    )
    load = threading.Thread(target=lambda: met.append(meeting.load(orders(1))))
    load.start()
    wait_until(lambda: got == [0], query)
    load.join(PATIENCE)

    assert [len(ids) for ids in met] == [1]
