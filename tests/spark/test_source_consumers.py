"""Several queries and processes at one queue: their messages, and sweeps."""

import pytest
from pyspark.errors import StreamingQueryException
from sqlalchemy import update

from queue_core.catalog.holder_tables import consumers
from tests.dump import backdate
from tests.factories import orders
from tests.spark.rig import PATIENCE, counts, finish, numbers_in, wait_until


def test_two_queries_share_a_queue_and_no_message_comes_twice(rig):
    queue = rig.orders(0, shards=4, key="number")
    stream = rig.source(maxMessagesPerTrigger=10)
    seen = {"one": [], "other": []}

    def query(name):
        def note(batch, _):
            seen[name].extend(numbers_in(batch))

        return rig.each(stream, note, checkpoint=name, trigger={})

    queries = [query(name) for name in seen]
    # Otherwise, the first one may get all before the other one has begun.
    wait_until(lambda: rig.store.view("consumers").num_rows == 2, queries[1])
    loaded = 0
    while not all(seen.values()):
        assert loaded < 2000
        queue.load(orders(20, first=loaded))
        loaded += 20
        wait_until(lambda: counts(queue, "waiting") == [0])
    wait_until(lambda: counts(queue, "deleted") == [loaded], queries[0])
    assert sorted(seen["one"] + seen["other"]) == list(range(loaded))


@pytest.mark.nightly
def test_a_query_ends_when_another_takes_its_name(rig):
    queue = rig.orders(1)
    stream = rig.source(consumer="reader", heartbeatInterval="100ms")
    older = rig.each(stream, lambda *_: None, checkpoint="older", trigger={})
    wait_until(lambda: counts(queue, "deleted") == [1], older)
    seen = []
    younger = rig.each(
        stream, lambda batch, _: seen.extend(numbers_in(batch)), checkpoint="younger", trigger={}
    )
    with pytest.raises(
        StreamingQueryException, match=r"ConsumerFenced.*'reader' was started again"
    ):
        older.awaitTermination(PATIENCE)
    queue.load(orders(2, first=1))
    wait_until(lambda: seen == [1, 2], younger)


def test_a_long_batch_is_not_swept_while_its_heart_beats(rig):
    queue = rig.orders(4)
    swept = []

    def dawdle(batch, _):
        assert batch.count() == 4
        backdate(rig.store, 600)
        # As if no heart had beaten since the firing.
        rig.store.catalog.write(lambda c: c.execute(update(consumers).values(heartbeat_at=1)))
        wait_until(lambda: rig.store.view("consumers")["heartbeat_at"][0].as_py().year > 1970)
        swept.append(queue.sweep(300.0, dead_after=PATIENCE))

    finish(rig.each(rig.source(heartbeatInterval="100ms"), dawdle))
    assert swept == [0]
    assert counts(queue, "deleted", "swept") == [4, 0]


def test_what_a_dead_query_held_is_swept_if_it_allows_that(rig):
    queue = rig.orders(4)

    def disaster(batch, _):
        batch.count()
        raise RuntimeError("disaster")

    with pytest.raises(StreamingQueryException, match="disaster"):
        finish(rig.each(rig.source(heartbeatInterval="100ms", sweepable=True), disaster))
    wait_until(lambda: queue.sweep(0.2, dead_after=0.5) == 4)
    assert counts(queue, "swept", "in_flight") == [4, 0]
    assert counts(queue, "waiting", magazine="sideline") == [4]


def test_a_query_that_is_renamed_on_its_checkpoint_is_refused(rig):
    queue = rig.orders(4)
    finish(rig.each(rig.source(consumer="reader"), lambda *_: None, trigger={"once": True}))
    with pytest.raises(StreamingQueryException, match=r"consumer='writer', but .* 'reader'"):
        finish(rig.each(rig.source(consumer="writer"), lambda *_: None))
    assert counts(queue, "deleted", "in_flight") == [0, 4]
