"""A bounded queue as a sink: the commit waits for room, fails, or drops the oldest."""

import threading

import pytest
from pyspark.errors import StreamingQueryException

from queue_core.errors import QueueFull
from tests.books import audit, leftover_files
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


@pytest.mark.nightly
def test_a_slow_consumer_holds_a_stream_back_and_gets_all_of_it(rig):
    rig.orders(60)
    copy = bounded(rig, 15)
    got, most = [], []

    def consume():
        while len(got) < 60:
            most.append(copy.browse().num_rows)
            firing = copy.fire(7, timeout=PATIENCE)
            got.extend(numbers_of(firing.messages))
            copy.delete(firing)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    finish(rig.sink(rig.source(maxMessagesPerTrigger=10), "copy"))
    consumer.join(PATIENCE)

    assert got == list(range(60))
    assert max(most) <= 15


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


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["setting", "option"])
def test_a_commit_can_fail_at_once(rig, how):
    rig.orders(20)
    bounded(rig, 10, overflow="fail" if how == "setting" else "block")
    options = {} if how == "setting" else {"onFull": "fail"}
    with pytest.raises(StreamingQueryException, match="queue 'copy' is full"):
        finish(rig.sink(rig.source(maxMessagesPerTrigger=10), "copy", **options))


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


def test_a_queue_that_is_created_can_be_bounded(rig):
    rig.orders(20)
    finish(rig.sink(rig.source(), "copy", maxSize="20", maxBytes="1m"))
    settings = rig.store.queue("copy").info.settings
    assert (settings.max_size, settings.max_bytes) == (20, 1 << 20)


def test_a_rendezvous_is_no_sink(rig):
    rig.orders(1)
    bounded(rig, 0)
    with pytest.raises(StreamingQueryException, match=r"is a rendezvous \(max_size=0\)"):
        finish(rig.sink(rig.source(), "copy"))


@pytest.mark.nightly
def test_a_table_waits_for_room_and_fails_when_there_is_none(rig):
    copy = bounded(rig, 5)
    rows = rig.spark.createDataFrame(
        [(n, "x", 0.5) for n in range(5)], "number long, customer string, amount double"
    )
    rig.write(rows, "copy")
    with pytest.raises(Exception, match="queue 'copy' is full"):
        rig.write(rows, "copy", timeout="100ms")
    with pytest.raises(QueueFull):
        copy.load(orders(1), timeout=0)
    assert leftover_files(rig.store) == set()


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
