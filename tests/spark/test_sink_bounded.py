"""A bounded queue as a sink: the commit waits for room, fails, or drops the oldest."""

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from tests.books import audit
from tests.factories import make_queue, numbers_of, orders
from tests.spark.rig import counts, finish, wait_until
from tests.waiting import Caller, standing

AT_ONCE = {"processingTime": "0 seconds"}


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
    rig.orders(16)
    copy = bounded(rig, 10)
    finish(rig.sink(rig.source(maxMessagesPerTrigger=8), "copy", onFull="ring"))
    assert numbers_of(copy.browse()) == list(range(6, 16))
    assert counts(copy, "loaded", "dropped") == [16, 6]


def test_a_batch_that_can_never_fit_says_so_at_once(rig):
    rig.orders(20)
    bounded(rig, 10)
    message = "never has room for a load of 20 messages, with max_size=10; .* maxMessagesPerTrigger"
    with pytest.raises(StreamingQueryException, match=message):
        finish(rig.sink(rig.source(), "copy"))


def test_the_commits_of_two_queries_meet_a_stream_that_fires(rig):
    """Each waits until its batch is fired, and the next batch of either begins only then."""
    names = ("orders", "returns")
    for name in names:
        rig.orders(10, name, shards=1)
    bounded(rig, 0)
    queries = [
        rig.sink(
            rig.source(name, maxMessagesPerTrigger=5), "copy", checkpoint=name, trigger=AT_ONCE
        )
        for name in names
    ]
    got = []
    wait_until(lambda: len(standing(rig.store)) == 2)
    offered = counts(rig.store.queue("copy"), "loaded")
    reader = rig.each(
        rig.source("copy"),
        lambda rows, _: got.append(sorted(row.number for row in rows.collect())),
        checkpoint="reader",
        trigger=AT_ONCE,
    )
    wait_until(lambda: sum(map(len, got)) == 20, reader)
    for query in (*queries, reader):
        query.stop()

    assert offered == [5], "one load at a time is offered"
    assert sorted(filter(None, got)) == [[*range(5)], [*range(5)], [*range(5, 10)], [*range(5, 10)]]


def test_a_batch_that_nobody_fires_in_time_waits_on_after_a_restart(rig):
    rig.orders(3)
    copy = bounded(rig, 0)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="the batch stays, and waits on when"):
            finish(rig.sink(rig.source(), "copy", timeout="200ms"))
    assert counts(copy, "loaded") == [3]
    first = copy.fire(2)
    query = rig.sink(rig.source(), "copy")
    wait_until(lambda: bool(standing(rig.store)), query)

    rest = copy.fire("all")

    finish(query)
    assert sorted(numbers_of(first.messages) + numbers_of(rest.messages)) == [0, 1, 2]
    assert counts(copy, "loaded") == [3]
    audit(rig.store)


@pytest.mark.nightly
def test_a_table_that_nobody_fires_is_withdrawn(rig):
    rig.orders(3)
    copy = bounded(rig, 0)
    with pytest.raises(PySparkException, match=r"keeps no messages \(max_size=0\)"):
        rig.write(rig.read(), "copy", timeout="2s")
    assert len(copy.fire("all")) == 0
    with pytest.raises(PySparkException, match="which a write with dedup does not wait for"):
        rig.write(rig.read(), "copy", dedup="number")


@pytest.mark.nightly
def test_a_stream_meets_the_loads_of_a_rendezvous(rig):
    meeting = make_queue(rig.store, max_size=0)
    got = []
    query = rig.each(
        rig.source(),
        lambda rows, _: got.extend(row.number for row in rows.collect()),
        trigger=AT_ONCE,
    )
    load = Caller(lambda: meeting.load(orders(1)))
    wait_until(lambda: got == [0], query)

    assert len(load.done()) == 1
