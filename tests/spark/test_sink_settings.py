"""Settings of a queue that the sink creates: what the selectable and smart variants need."""

import pytest
from pyspark.errors import PySparkException

from queue_core import Retry
from tests.factories import numbers_of
from tests.spark.rig import finish

pytestmark = pytest.mark.nightly

SETTINGS = {
    "attributes": "number, size",
    "categories": "kind",
    "priority": "size",
    "priorityAging": "1h",
    "maxSize": "100",
    "room": "on_fire",
    "retry": "Retry(attempts=2)",
    "concurrency": "3",
    "sweepAfter": "30m",
}


@pytest.fixture
def jobs(rig):
    rows = [(n, ("a", "b")[n % 2], float(n)) for n in range(10)]
    return rig.spark.createDataFrame(rows, "number LONG, kind STRING, size DOUBLE").coalesce(1)


def test_the_sink_sets_what_a_new_queue_needs(rig, jobs):
    rig.write(jobs, "jobs", shards="1", **SETTINGS)

    queue = rig.store.queue("jobs")
    settings = queue.info.settings
    assert (settings.attributes, settings.categories) == (("number", "size"), ("kind",))
    assert (settings.priority, settings.priority_aging) == ("size", 3600.0)
    assert (settings.room, settings.max_size) == ("on_fire", 100)
    assert (settings.retry, settings.concurrency) == (Retry(attempts=2), 3)
    assert settings.sweep_after == 1800.0
    # A slice of its own for each category, also of the rows that created the queue.
    slices = rig.store.view("slices", "jobs").column("messages").to_pylist()
    assert sorted(slices) == [5, 5]
    assert numbers_of(queue.fire(2, selector="kind = 'a'").messages) == [8, 6]


def test_a_stream_writes_with_the_same_options_again(rig, jobs):
    rig.orders(3, "source")
    how = {"attributes": "number", "retry": "Retry( attempts = 2 )", "room": "on_delete"}
    for count in (3, 4):
        finish(rig.sink(rig.source("source"), "copy", **how))
        rig.store.queue("source").load([{"number": 9}])
        assert rig.store.queue("copy").browse().num_rows == count


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"room": "on_fire"}, "room='on_fire': queue 'jobs' has room = 'on_delete'"),
        ({"categories": "number"}, "categories=.* queue 'jobs' has categories"),
        ({"retry": "Retry(attempts=3)"}, "queue 'jobs' has retry"),
    ],
)
def test_an_existing_queue_keeps_its_settings(rig, jobs, given, told):
    rig.write(jobs, "jobs", categories="kind")
    with pytest.raises(PySparkException, match=told):
        rig.write(jobs, "jobs", **given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"room": "never"}, "room='never': use on_delete, on_fire"),
        ({"categories": "colour"}, "no column 'colour'"),
        ({"priorityAging": "soon"}, "priorityAging='soon'"),
        ({"concurrency": "200"}, "concurrency='200': use 0 to 100"),
    ],
)
def test_bad_settings_create_no_queue(rig, jobs, given, told):
    with pytest.raises(PySparkException, match=told):
        rig.write(jobs, "jobs", **given)
    assert rig.store.queues() == []
