"""A consumer that is killed with all that it has fired: when it is rescued, and when not yet."""

import pytest
from sqlalchemy import update

from queue_core import Store
from queue_core.catalog.tables import consumers, leases, slices
from tests.crash.spark.copied import at_the_end
from tests.crash.spark.driver import Job
from tests.crash.spark.lives import Life
from tests.crash.spark.scene import Scene

pytestmark = [pytest.mark.crash, pytest.mark.slow]
MESSAGES = 10_000
MINUTE = 60


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path / "scene", MESSAGES)


def pass_time(store: Store, seconds: float) -> None:
    """Let all events have happened *seconds* earlier."""
    by = int(seconds * 1e6)
    stamps = (slices.c.fired_at, consumers.c.heartbeat_at, leases.c.ends_at)
    store.catalog.write(
        lambda connection: [
            connection.execute(update(stamp.table).values({stamp: stamp - by})) for stamp in stamps
        ]
    )


def sweep_once(spark, scene):
    """A sweep as a streaming query that ends; how many messages its report tells."""
    moved = []
    stream = spark.readStream.format("ignis").option("task", "sweep").load(str(scene.store_path))
    writer = stream.writeStream.foreachBatch(lambda batch, _: moved.extend(batch.collect()))
    writer = writer.option("checkpointLocation", str(scene.checkpoint.with_name("sweeps")))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(180)
    assert {(row.queue, row["from"], row.to) for row in moved} <= {("in", "main", "sideline")}
    return sum(row.moved for row in moved)


def test_what_a_killed_consumer_held_is_aside_after_the_sweep_and_not_before_its_age(spark, scene):
    job = Job.of(scene, limit=MESSAGES, sweepable=True)
    with Life(Job(**vars(job) | {"fault": "sink.before_commit=session"}), scene.said) as life:
        assert life.wait() == -9, life.last_words()

    with scene.store() as store:
        queue = store.queue("in")

        def total(name, magazine="main"):
            rows = queue.metadata().to_pylist()
            return sum(row[name] for row in rows if row["magazine"] == magazine)

        assert total("in_flight") == MESSAGES

        # Its heart may still beat, and it may still lead.
        assert sweep_once(spark, scene) == 0
        # It is dead for certain, and somebody else leads: but what it held is not old enough.
        pass_time(store, 15 * MINUTE)
        assert sweep_once(spark, scene) == 0
        assert (total("in_flight"), total("waiting", "sideline")) == (MESSAGES, 0)

        pass_time(store, 5 * MINUTE)
        assert sweep_once(spark, scene) == MESSAGES
        assert (total("in_flight"), total("waiting", "sideline")) == (0, MESSAGES)
        told = queue.failures()
        assert set(told.column("kind").to_pylist()) == {"swept"}
        assert set(told.column("consumer").to_pylist()) == {"copier"}
        assert len(set(told.column("message_id").to_pylist())) == MESSAGES

        # Nothing is lost, and nothing came twice: it had not been published.
        assert queue.shovel() == MESSAGES
    with Life(job, scene.said) as life:
        assert life.wait() == 0, life.last_words()
    counts, wrong = at_the_end(scene, rescued=True)
    assert wrong == []
    assert counts.ok == MESSAGES
