"""Side tasks through Spark: as queries of their own, and inside those that consume."""

import json
import shutil

import pytest
from pyspark.errors import StreamingQueryException

from queue_core.catalog.records import schedule
from tests.factories import main, orders
from tests.spark.rig import Disaster, Rig, counts, finish, wait_until

COLUMNS = ["task", "queue", "shard", "moved", "from", "to", "when"]


def sideline_all(queue):
    queue.sideline(queue.fire("all"))


def sidelined(rig, count, name="orders", **shape):
    queue = rig.orders(count, name, **shape)
    sideline_all(queue)
    return queue


def report(rig, queue=None, **options):
    """A stream of side tasks."""
    return rig.source(queue, **({"task": "shovel"} | options))


def test_a_task_that_is_run_once_ends_and_its_rows_tell_what_it_moved(rig):
    queue = sidelined(rig, 6, shards=2, key="number")
    stream = report(rig)
    assert stream.columns == COLUMNS

    (rows,) = rig.batches(stream)

    assert sum(row.moved for row in rows) == 6
    told = [(row.task, row.queue, row.shard, row["from"], row.to) for row in rows]
    assert told == [("shovel", "orders", shard, "sideline", "main") for shard in (0, 1)]
    assert main(queue) == list(range(6))


def test_nothing_to_do_is_an_end_without_rows(rig):
    rig.orders(1)

    assert rig.batches(report(rig, task="all")) == []


@pytest.mark.nightly
def test_the_checkpoint_says_since_when_and_how_far_the_log_is_read(rig):
    queue = sidelined(rig, 4)
    queue.shovel()
    sideline_all(queue)
    rig.batches(report(rig))

    logged = json.loads(rig.log("offsets")[0].read_text().splitlines()[-1])
    stream = logged.pop("stream")
    assert stream.startswith("tasks:")
    # Of the reports, those of others; its own belong to the round.
    assert logged == {"since": 1, "round": 1, "report": 1}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("tasks", "belongs to the side tasks of another store"),
        ("messages", "not an offset of an ignis source that runs side tasks"),
    ],
)
def test_a_checkpoint_of_another_store_or_kind_is_refused(rig, checkpoint, message):
    sidelined(rig, 3)
    rig.orders(3, "other")
    rig.batches(report(rig), checkpoint="tasks")
    rig.batches(rig.source("other"), checkpoint="messages")
    another = Rig(rig.spark, rig.folder / "another")
    queue = sidelined(another, 3)
    shutil.copytree(rig.folder / checkpoint, another.folder / "checkpoint")

    with pytest.raises(StreamingQueryException, match=message):
        finish(another.each(report(another), lambda *_: None))
    assert queue.browse(magazine="sideline").num_rows == 3
    another.store.close()


@pytest.mark.parametrize("lose_commit", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_batch_that_is_read_again_has_the_same_rows(rig, lose_commit):
    """The first one too, whose beginning Spark does not log."""
    queue = sidelined(rig, 5, shards=2, key="number")
    stream = report(rig)
    seen = []

    def work(batch, _):
        seen.append(batch.collect())
        if not lose_commit:
            raise Disaster

    if lose_commit:
        finish(rig.each(stream, work))
        rig.forget_commit()
    else:
        with pytest.raises(StreamingQueryException, match="Disaster"):
            finish(rig.each(stream, work))
    sideline_all(queue)
    queue.shovel()

    again = rig.batches(stream)
    assert again[0] == seen[0]
    assert sum(row.moved for row in seen[0]) == 5


@pytest.mark.nightly
def test_a_query_that_runs_on_runs_its_task_whenever_it_is_due(rig):
    queue = sidelined(rig, 3)
    seen = []
    stream = report(rig, interval="100ms")
    query = rig.each(stream, lambda batch, _: seen.append(batch.collect()), trigger={})
    wait_until(lambda: [row.moved for batch in seen for row in batch] == [3], query)
    queue.sideline(queue.fire(2))
    wait_until(lambda: [row.moved for batch in seen for row in batch] == [3, 2], query)

    assert counts(queue, "shovelled", magazine="sideline") == [5]
    # Idle in between, it notes nothing.
    logged = [json.loads(file.read_text().splitlines()[-1]) for file in rig.log("offsets").values()]
    # The first batch of a query has an offset even if nothing is due yet.
    rounds = sorted(offset["round"] for offset in logged)
    assert rounds == [*range(rounds[0], rounds[0] + len(rounds))]
    assert rounds[-1] == len([batch for batch in seen if batch])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "sweeep"}, "did you mean 'sweep'"),
        ({"task": "shovel", "queue": "ordres"}, "no queue 'ordres'; did you mean 'orders'"),
        ({"task": "sweep", "rate": 5}, "rate belongs to task='shovel'"),
        ({"task": "shovel", "schema": "moved INT"}, "column 'moved' is bigint, not int"),
    ],
)
def test_what_cannot_be_done_is_refused(rig, options, message):
    rig.orders(1)
    given = {"queue": None, "schema": None} | options
    with pytest.raises(Exception, match=message):
        finish(rig.each(rig.source(**given), lambda *_: None))


def test_a_task_is_no_batch_read(rig):
    rig.orders(1)
    with pytest.raises(Exception, match=r"task= is for spark.readStream.*view 'reports'"):
        rig.read(None, task="shovel").collect()


def test_a_consuming_query_shovels_what_has_failed(rig):
    """And with new settings as soon as it has read them: before, it does not."""
    queue = sidelined(rig, 3, retry=None, shovel_interval=None)
    seen = []
    stream = rig.source(tasks="shovel", refreshInterval="100ms", consumer="reader")
    query = rig.each(stream, lambda batch, _: seen.extend(batch.collect()), trigger={})
    queue.load(orders(1, first=3))
    wait_until(lambda: numbers(seen) == [3], query)
    assert counts(queue, "shovelled", magazine="sideline") == [0]

    queue.admin.change_settings(shovel_interval=0.1)
    wait_until(lambda: sorted(numbers(seen)) == [0, 1, 2, 3], query)
    assert {row.number: row._attempt for row in seen} == {0: 1, 1: 1, 2: 1, 3: 0}


def test_a_consuming_query_looks_after_its_own_queues(rig):
    queue = rig.orders(1, retry=None)
    rig.orders(1, "others")
    seen = []
    query = rig.each(rig.source(), lambda batch, _: seen.extend(batch.collect()), trigger={})
    wait_until(lambda: len(scheduled(rig)) == 8, query)

    assert scheduled(rig) == {
        (schedule.STORE, "vacuum"),
        (schedule.STORE, "sample"),
        (schedule.STORE, "fsck"),
        # Of the sweep, the one that leads looks after all queues.
        (schedule.STORE, "sweep"),
        *((queue.info.id, task) for task in ("shovel", "expire", "compact", "trim")),
    }


def scheduled(rig):
    with rig.store.catalog.read() as connection:
        rows = connection.execute(schedule.schedule.select())
        return {(row.queue_id, row.task) for row in rows}


def numbers(rows):
    return [row.number for row in rows]
