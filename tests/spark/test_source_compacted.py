"""A stream over messages that were compacted is the same as over those that were not."""

import pytest

from queue_core.upkeep.tasks.compaction_plan import NEIGHBOURS
from tests.factories import load_singly
from tests.spark.rig import counts, finish


@pytest.fixture
def queue(rig):
    return rig.orders(0)


@pytest.fixture
def ids(queue):
    """The ids of messages that were loaded one by one, and then compacted."""
    ids = load_singly(queue, NEIGHBOURS)
    assert queue.compact() == NEIGHBOURS
    return ids


def test_a_schema_picks_of_compacted_messages(rig, ids):
    stream = rig.source(schema="_message_id LONG, number LONG")

    assert rig.batches(stream) == [list(zip(ids, range(NEIGHBOURS), strict=True))]


def test_compacted_messages_are_settled_by_their_ids(rig, queue, ids):
    judged = rig.source(ack="settle", consumer="judge").selectExpr(
        "_message_id",
        "if(number % 4 = 0, 'sideline', 'delete') AS outcome",
        "if(number % 4 = 0, 'declined', NULL) AS reason",
    )
    finish(rig.sink(judged, mode="settle", consumer="judge"))

    aside = queue.browse(magazine="sideline").column("_message_id").to_pylist()
    assert aside == ids[::4]
    assert queue.failures().column("message_id").to_pylist() == aside
    assert counts(queue, "deleted", "in_flight") == [NEIGHBOURS - len(aside), 0]
