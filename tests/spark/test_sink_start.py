"""When the options of a streaming sink are checked: Spark makes the sink with its first batch."""

import pytest
from pyspark.errors import StreamingQueryException

from tests.factories import make_queue
from tests.spark.rig import finish

WRONG = {"dedupWindow": "soon", "shards": "none"}


def test_start_calls_nothing_of_a_sink_and_the_first_batch_comes_without_messages(rig):
    """So no error can come earlier than the first batch, and none waits for a message."""
    make_queue(rig.store)

    query = rig.sink(rig.source(), "copy", trigger={"processingTime": "1 hour"}, **WRONG)

    with pytest.raises(StreamingQueryException, match="dedupWindow='soon'"):
        finish(query)


def test_the_first_batch_refuses_all_malformed_options_and_loses_nothing(rig):
    rig.orders(10)

    with pytest.raises(StreamingQueryException) as refused:
        finish(rig.sink(rig.source(), "copy", **WRONG))

    assert "dedupWindow='soon': use a duration such as" in str(refused.value)
    assert "shards='none': use " in str(refused.value)
    assert "copy" not in rig.store.queues()
    # The same checkpoint, with what was meant.
    finish(rig.sink(rig.source(), "copy", dedupWindow="5m", shards="2"))
    assert rig.arrived() == list(range(10))
