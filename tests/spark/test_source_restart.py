"""A restarted query: where it continues, and which messages it reads again."""

import json
import re

import pytest
from pyspark.errors import StreamingQueryException

from queue_core.selection.request import FireRequest
from queue_core.verbs.fire import fire
from tests.factories import orders
from tests.spark.rig import Disaster, counts, finish

ONCE = {"once": True}


def fail_in_batch(rig, stream, fatal, **how):
    """Run a query that dies in one of its batches; return what each batch had until then."""
    seen = []

    def work(batch, number):
        seen.append([tuple(row) for row in batch.collect()])
        if number == fatal:
            raise Disaster

    with pytest.raises(StreamingQueryException, match="Disaster"):
        finish(rig.each(stream, work, **how))
    return seen


def orphan(rig, name):
    """Fire a message as a driver does that dies before it has noted the offset."""
    consumer = rig.store.consumer(name, beats=True)
    queue = rig.store.queue("orders").info
    wanted = FireRequest(queue_ids=(queue.id,), max_messages=1)
    assert fire(rig.store.catalog, consumer, wanted, seen=False).ticket.messages == 1


def test_offsets_are_a_consumer_and_a_ticket_in_this_order(rig):
    rig.orders(3)
    rig.numbers(rig.source(consumer="reader", maxMessagesPerTrigger=2))
    lines = [rig.log("offsets")[batch].read_text().splitlines()[-1] for batch in (0, 1)]
    assert lines == ['{"consumer": "reader", "ticket": 1}', '{"consumer": "reader", "ticket": 2}']


def test_a_query_goes_on_where_it_was_and_its_checkpoint_keeps_a_name(rig):
    queue = rig.orders(3)
    assert rig.numbers(rig.source()) == [[0, 1, 2]]
    queue.load(orders(2, first=3))
    assert rig.numbers(rig.source()) == [[3, 4]]
    assert counts(queue, "deleted") == [5]
    lines = [rig.log("offsets")[batch].read_text().splitlines()[-1] for batch in (0, 1)]
    first, second = (json.loads(line) for line in lines)
    assert re.fullmatch(r"spark:\w+:\S+:[0-9a-f]{32}", first["consumer"])
    assert second == first | {"ticket": 2}


def test_a_batch_that_failed_is_read_again_the_same_rows_in_the_same_order(rig):
    rig.orders(60, shards=4, key="number")
    stream = rig.source(maxMessagesPerTrigger=20)
    failed = fail_in_batch(rig, stream, 1)
    rig.store.queue("orders").load(orders(20, first=60))
    again = [[tuple(row) for row in batch] for batch in rig.batches(stream)]

    assert [len(batch) for batch in failed] == [20, 20]
    assert again[0] == failed[1]
    assert [len(batch) for batch in again] == [20, 20, 20]
    assert sorted(row[0] for batch in [failed[0], *again] for row in batch) == list(range(80))


def test_a_batch_of_which_spark_has_lost_its_note_is_read_again(rig):
    rig.orders(30, shards=3, key="number")
    stream = rig.source()
    first = rig.batches(stream, trigger=ONCE)
    rig.forget_commit()
    assert rig.batches(stream, trigger=ONCE) == first
    assert len(first[0]) == 30


@pytest.mark.parametrize(
    "consumer",
    [
        pytest.param({}, id="unnamed"),
        pytest.param({"consumer": "reader"}, marks=pytest.mark.nightly, id="named"),
    ],
)
def test_the_very_first_batch_is_read_again(rig, consumer):
    """Spark does not note where it began, and asks a second time."""
    queue = rig.orders(5, shards=2, key="number")
    stream = rig.source(maxMessagesPerTrigger=3, **consumer)
    (failed,) = fail_in_batch(rig, stream, 0)
    again = rig.batches(stream)

    assert [tuple(row) for row in again[0]] == failed
    assert sorted(row.number for batch in again for row in batch) == [0, 1, 2, 3, 4]
    assert counts(queue, "fired", "deleted") == [5, 5]


def test_under_its_name_a_query_without_its_checkpoint_finds_what_it_held(rig):
    queue = rig.orders(4)
    stream = rig.source(consumer="reader", maxMessagesPerTrigger=2)
    (failed,) = fail_in_batch(rig, stream, 0)
    assert [row[0] for row in failed] == [0, 1]
    assert rig.numbers(stream, checkpoint="another") == [[0, 1], [2, 3]]
    assert counts(queue, "fired", "deleted") == [4, 4]


def test_without_name_and_checkpoint_a_query_leaves_what_another_held(rig):
    queue = rig.orders(4)
    stream = rig.source(maxMessagesPerTrigger=2)
    fail_in_batch(rig, stream, 0)
    assert rig.numbers(stream, checkpoint="another") == [[2, 3]]
    assert counts(queue, "in_flight") == [2]


def test_what_was_fired_and_never_noted_is_the_next_batch_of_its_query(rig):
    queue = rig.orders(4)
    stream = rig.source(consumer="reader", maxMessagesPerTrigger=2)
    assert rig.numbers(stream) == [[0, 1], [2, 3]]
    queue.load(orders(3, first=4))
    orphan(rig, "reader")

    assert rig.numbers(stream) == [[4], [5, 6]]


def test_what_a_dead_query_fired_and_never_planned_goes_back_to_its_place(rig):
    queue = rig.orders(4)
    orphan(rig, "dead")
    assert queue.peek(1).column("number").to_pylist() == [1]
    assert rig.store.admin.recover(dead_after=0.0) == 1
    assert rig.numbers(rig.source()) == [[0, 1, 2, 3]]


def test_a_checkpoint_of_another_source_is_told_from_ours(rig):
    rig.orders(1)
    stream = rig.source()
    rig.numbers(stream)
    last = rig.log("offsets")[0]
    text = last.read_text().splitlines()
    last.write_text("\n".join([*text[:-1], '{"partition": 3}']))
    last.with_name(f".{last.name}.crc").unlink()
    with pytest.raises(StreamingQueryException, match="is not an offset of an ignis source"):
        rig.numbers(stream)
