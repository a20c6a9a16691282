"""The target of a task, and changes of the queue while the task runs."""

from operator import attrgetter
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ignis_sink import publishing
from ignis_sink.load import stage
from ignis_sink.options import SinkOptions
from ignis_sink.planning import find_target
from ignis_sink.publishing import open_queue, publish_tasks
from queue_core import Retry, Store
from queue_core.errors import (
    BadName,
    Conflict,
    Invalid,
    NoSuchQueue,
    QueueExists,
    SchemaMismatch,
)
from queue_core.values.limits import Limit
from queue_core.values.model import Run, Staged
from tests.factories import make_queue, numbers_of, orders

ROWS = StructType([StructField("number", LongType()), StructField("text", StringType())])
FIRST = pa.schema([("number", pa.int64())])
#: What the selectable and smart variants need of a queue that the sink creates.
SETTINGS = {
    "categories": "customer",
    "attributes": "number, amount",
    "priority": "amount",
    "priorityAging": "1h",
    "maxSize": "100",
    "room": "on_fire",
    "retry": "Retry( attempts = 2 )",
    "concurrency": "3",
    "sweepAfter": "30m",
    "shovelInterval": "none",
    "sidelineExpiry": "2d",
    "limits": "limit(in_flight=100)",
    "weight": "4",
    "compression": "zstd",
    "dedup": "number",
    "dedupWindow": "1m",
    "onFull": "ring",
}


def options(folder, **given):
    return SinkOptions.of({"path": str(folder), "queue": "q"} | given)


def test_a_new_queue_is_made_when_its_rows_are_published_and_not_before(tmp_path):
    chosen = options(tmp_path / "store", key="text", shards="3")
    target = find_target(chosen, ROWS)
    assert not (tmp_path / "store").exists()
    _, queue = open_queue(target, chosen)
    assert (queue.schema, queue.key, queue.shards) == (target.spec.schema, "text", 3)


def test_the_first_rows_of_a_new_queue_are_staged_as_later_ones(tmp_path):
    chosen = options(tmp_path, compression="zstd", categories="text", fairBy="text")
    target = find_target(chosen, ROWS)
    _, queue = open_queue(target, chosen)
    settings = ("attributes", "categories", "compression", "fair_by", "fair_weights")
    of_settings = (f"settings.{name}" for name in settings)
    staged_by = attrgetter("schema", "schema_version", "shards", "key", *of_settings)
    assert staged_by(target.spec) == staged_by(queue)


def test_what_is_not_null_in_a_table_may_be_null_in_its_queue(tmp_path):
    required = StructType([StructField("number", LongType(), nullable=False)])
    assert find_target(options(tmp_path), required).spec.schema == FIRST


@pytest.mark.parametrize(
    ("schema", "shape"),
    [
        (pa.schema([("number", pa.int64()), ("text", pa.binary())]), {}),
        (pa.schema([("number", pa.int64()), ("text", pa.string())]), {"shards": 5}),
        (pa.schema([("number", pa.int64()), ("text", pa.string())]), {"key": "text"}),
    ],
    ids=["columns", "shards", "key"],
)
def test_rows_are_not_published_into_a_queue_that_somebody_else_made_differently(
    tmp_path, schema, shape
):
    chosen = options(tmp_path)
    target = find_target(chosen, ROWS)
    with Store.open(tmp_path) as store:
        store.create_queue("q", schema, **shape)
    with pytest.raises(Conflict, match="queue 'q' was created or changed by another process"):
        open_queue(target, chosen)


def test_of_two_that_add_columns_at_once_the_second_writes_again(tmp_path):
    with Store.open(tmp_path) as store:
        queue = store.create_queue("q", FIRST)
        chosen = options(tmp_path, mergeSchema="true")
        target = find_target(chosen, ROWS)
        queue.admin.add_columns(pa.schema([*FIRST, pa.field("other", pa.string())]))
        with pytest.raises(Conflict, match="write them again"):
            open_queue(target, chosen)
        again = find_target(chosen, ROWS)
        assert open_queue(again, chosen)[1].schema.names == ["number", "other", "text"]


def test_rows_of_an_older_schema_are_published_when_columns_were_added_since(tmp_path):
    with Store.open(tmp_path) as store:
        queue = store.create_queue("q", FIRST)
        chosen = options(tmp_path)
        target = find_target(chosen, StructType([ROWS["number"]]))
        queue.admin.add_columns(pa.schema([*FIRST, pa.field("other", pa.string())]))
        assert open_queue(target, chosen)[1].schema_version == target.spec.schema_version + 1


def test_two_that_make_the_same_queue_at_once_share_it(tmp_path, monkeypatch):
    chosen = options(tmp_path)
    first, second = find_target(chosen, ROWS), find_target(chosen, ROWS)
    made = open_queue(first, chosen)
    assert open_queue(second, chosen) == made
    with monkeypatch.context() as patched:
        # As if the first one had made it just after the second one had looked.
        patched.setattr(publishing, "find_queue", Mock(side_effect=NoSuchQueue("not yet")))
        assert open_queue(second, chosen) == made
    different = find_target(options(tmp_path / "elsewhere", shards="2"), ROWS)
    with pytest.raises((Conflict, QueueExists)):
        open_queue(different, chosen)


def test_a_task_that_fails_removes_what_it_has_written(tmp_path):
    target = find_target(options(tmp_path), ROWS)

    def batches():
        yield pa.record_batch({"number": [1], "text": ["x" * (40 << 20)]})
        raise OSError("the lines are down")

    with pytest.raises(OSError, match="the lines are down"):
        stage(batches(), target)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_segments_without_a_shard_take_the_shards_in_turn_one_for_each_task():
    staged = [
        Staged(
            location=None,
            data=b"",
            rows=1,
            bytes=1,
            chunks=(),
            runs=(Run(shard=shard, start=0, stop=1),),
            schema_version=1,
        )
        for shard in (None, None, 5)
    ]
    tasks = [staged[:2], staged[:2], staged[2:]]
    shards = [segment.runs[0].shard for segment in publishing.in_turn(tasks, 7, 4)]
    assert shards == [3, 3, 0, 0, 5]


def rows(**columns):
    """The columns of a table of numbered rows."""
    return from_arrow_schema(pa.schema({"number": pa.int64(), **columns}.items()))


def test_the_options_are_settings_of_the_new_queue_also_for_the_rows_that_create_it(tmp_path):
    chosen = SinkOptions.of(SETTINGS | {"path": str(tmp_path), "queue": "q", "shards": "1"})
    table = orders(10, customers=2)
    task = stage(table.to_batches(), find_target(chosen, from_arrow_schema(table.schema)))
    publish_tasks(task.target, [task], chosen, 0, None)

    queue = open_queue(task.target, chosen)[1]
    settings = queue.settings
    assert (settings.attributes, settings.categories) == (("number", "amount"), ("customer",))
    assert (settings.priority, settings.priority_aging) == ("amount", 3600.0)
    assert (settings.room, settings.max_size) == ("on_fire", 100)
    assert (settings.retry, settings.concurrency) == (Retry(attempts=2), 3)
    assert (settings.sweep_after, settings.shovel_interval) == (1800.0, None)
    assert (settings.sideline_expiry, settings.weight) == (172_800.0, 4)
    assert (settings.limits, settings.compression) == ((Limit(in_flight=100),), "zstd")
    assert (settings.dedup, settings.dedup_window) == (("number",), 60.0)
    assert settings.overflow == "ring"
    with Store.open(tmp_path) as opened:
        # A slice of its own for each category.
        assert opened.view("slices").column("messages").to_pylist() == [5, 5]
        firing = opened.queue("q").fire(2, selector="customer = 'customer-0'")
        assert numbers_of(firing.messages) == [8, 6]
    # The next batch has the same options.
    assert open_queue(task.target, chosen)[1] == queue


@pytest.mark.parametrize(
    ("columns", "given", "told"),
    [
        ({"custmer": pa.string()}, {}, "has no column 'custmer'; did you mean 'customer'"),
        ({"customer": pa.list_(pa.int64())}, {}, "'customer' is string; list<.*> values do not"),
        ({"amount": pa.string()}, {"mergeSchema": "true"}, "is double; string values do not"),
        ({"Customer": pa.string()}, {"mergeSchema": "true"}, "'Customer' differ only in case"),
        ({}, {"key": "number"}, "key='number': queue 'orders' has the key 'customer'"),
        ({}, {"room": "on_fire"}, "room='on_fire': queue 'orders' has room = 'on_delete'"),
        ({}, {"categories": "number"}, "categories=.* queue 'orders' has categories"),
        ({}, {"retry": "Retry(attempts=3)"}, "queue 'orders' has retry"),
        ({}, {"dedupWindow": "1h"}, "queue 'orders' remembers a message for dedup_window = 300"),
    ],
)
def test_rows_and_options_that_do_not_fit_an_existing_queue_are_refused(
    tmp_path, columns, given, told
):
    with Store.open(tmp_path) as store:
        make_queue(store, key="customer", categories=["customer"])
    with pytest.raises(Invalid, match=told):
        find_target(options(tmp_path, queue="orders", **given), rows(**columns))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"room": "never"}, "room='never': use on_delete or on_fire"),
        ({"categories": "colour"}, "no column 'colour'"),
        ({"priorityAging": "soon"}, "priorityAging='soon'"),
        ({"concurrency": "200"}, "concurrency='200': use a whole number from 0 to 100"),
        ({"shovelConcurrency": "0"}, "use a whole number from 1 to 50"),
        ({"fairWeights": '{"a": 2}'}, "fair_weights without fair_by"),
        ({"fairWeights": '{"a": 0}', "fairBy": "text"}, "use a number from 0.001"),
        ({"mode": "settle", "retry": "none"}, "retry=none is a setting of a new queue"),
        ({"policy": "latest"}, "give the queue a key"),
        ({"policy": "latests", "key": "text"}, "did you mean 'latest'"),
        ({"policy": "merge(sum(text))", "key": "number"}, "is not defined for string"),
        ({"policy": "no_such:check", "shards": "1"}, "'no_such:check' cannot be imported"),
        ({"dedup": "numbr"}, "did you mean 'number'"),
    ],
)
def test_options_that_do_not_fit_a_new_queue_are_refused(tmp_path, given, told):
    with pytest.raises(Invalid, match=told):
        find_target(options(tmp_path, **given), ROWS)


def test_a_row_whose_key_is_null_is_refused(tmp_path):
    target = find_target(options(tmp_path, key="text"), ROWS)
    with pytest.raises(SchemaMismatch, match="key column 'text' is null in 1 rows"):
        stage([pa.record_batch({"number": [1, 2], "text": ["a", None]})], target)


def test_a_template_makes_no_queue_of_the_name_of_a_sideline(tmp_path):
    with Store.open(tmp_path) as store:
        queue = make_queue(store)
        chosen = SinkOptions.of({"path": str(tmp_path), "queueColumn": "to", "template": "orders"})
        table = orders(2).append_column("to", pa.array(["orders", "orders_SIDELINE"]))
        target = find_target(chosen, from_arrow_schema(table.schema))
        task = stage(table.to_batches(), target)
        with pytest.raises(BadName, match="are reserved for sidelines"):
            publish_tasks(target, [task], chosen, 0, None)
        assert queue.browse().num_rows == 0


def test_the_column_of_queues_is_the_one_that_is_written_alike(tmp_path):
    with Store.open(tmp_path) as store:
        make_queue(store)
    given = {"path": str(tmp_path), "queues": "orders"}
    both = rows(customer=pa.string(), Customer=pa.string())
    target = find_target(SinkOptions.of(given | {"queueColumn": "Customer"}), both)
    assert target.routes.column == "Customer"
    other = find_target(
        SinkOptions.of(given | {"queueColumn": "CUSTOMER"}), rows(Customer=pa.string())
    )
    assert other.routes.column == "Customer"
