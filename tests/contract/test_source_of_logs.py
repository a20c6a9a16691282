"""The driver's side of a query that reads logs, without Spark: its offsets, plans and refusals."""

import json
import time

import pyarrow as pa
import pytest

from ignis_source.log_session import LogSession
from ignis_source.offset import LogOffset, LogRange
from ignis_source.options import SourceOptions
from ignis_source.schema import batch_schema, source_schema
from queue_core import Store
from queue_core.errors import BadOption, NoSuchQueue, OffsetsLost, SchemaMismatch
from tests.dump import dump, log_earlier, log_in_a_minute
from tests.factories import drop, make_filled, make_queue, orders

EARLIEST = {"startingOffsets": "earliest"}
#: Messages that become a file.
MANY = 4_000


class Reader:
    """What Spark would do with a session."""

    def __init__(self, store, all_columns, options):
        given = {"catalog": store.address.catalog, "storage": store.address.storage}
        given |= {"read": "log", "idleWait": "0.05"}
        given |= {} if "queues" in options else {"queue": "orders"}
        parsed = SourceOptions.of({**given, **{name: str(at) for name, at in options.items()}})
        wanted = source_schema(parsed)
        self.schema = batch_schema(wanted)
        self.session = LogSession(SourceOptions(*parsed[:-1], all_columns), wanted)

    def begin(self):
        return self.session.initial()

    def next(self, start, most=None):
        return self.session.next(start, most)

    def partitions(self, batch=None):
        return self.session.batch() if batch is None else self.session.plan(batch)

    def rows(self, batch=None):
        """The rows of a batch, or of a read that is no stream."""
        found = [each for part in self.partitions(batch) for each in part.batches(self.schema)]
        return pa.Table.from_batches(found, schema=self.schema).to_pylist()

    def numbers(self, batch=None):
        return [row["number"] for row in self.rows(batch)]


@pytest.fixture
def reader(store):
    made = []

    def make(*, all_columns=False, **options):
        made.append(Reader(store, all_columns, options))
        return made[-1]

    yield make
    for each in made:
        each.session.close()


def trim(store, queue):
    """Let the log begin after what it has now."""
    log_earlier(store, 10 * 86_400)
    assert queue.admin.trim()


def test_a_batch_read_has_what_is_gone_from_the_queue_in_the_order_of_offsets(store, topic, reader):
    topic.load(orders(3))
    topic.load(orders(MANY, 3))
    topic.delete(topic.fire("all"))
    rows = reader().rows()

    assert [row["number"] for row in rows] == [*range(MANY + 3)]
    assert [row["_offset"] for row in rows] == [*range(MANY + 3)]
    assert {row["_shard"] for row in rows} == {0}
    assert {row["_queue"] for row in rows} == {"orders"}
    assert len({row["_message_id"] for row in rows}) == MANY + 3


def test_reading_changes_nothing(store, topic, reader):
    topic.load(orders(3))
    before = dump(store)
    each = reader(**EARLIEST)
    batch = each.next(each.begin())
    assert each.numbers(batch) == [0, 1, 2]
    assert dump(store) == before


def test_rows_with_gaps_have_offsets_without(store, reader):
    queue = make_queue(store, shards=3, key="number", categories=["customer"], log="7 days")
    for first in range(0, 200, 50):
        queue.load(orders(50, first))
    rows = reader(minPartitions=7).rows()

    assert sorted(row["number"] for row in rows) == [*range(200)]
    for shard in range(3):
        mine = [row for row in rows if row["_shard"] == shard]
        ordered = sorted(mine, key=lambda row: row["_offset"])
        assert [row["_offset"] for row in ordered] == [*range(len(mine))]
        numbers = [row["number"] for row in ordered]
        assert numbers == sorted(numbers)


def test_a_new_stream_begins_at_the_latest_offset(store, topic, reader):
    topic.load(orders(3))
    each = reader()
    start = each.begin()
    assert each.next(start) is start
    topic.load(orders(2, 3))
    assert each.numbers(each.next(start)) == [3, 4]


def test_a_batch_keeps_where_it_begins(store, topic, reader):
    """Spark does not log the beginning of its first batch, and asks again, perhaps much later."""
    topic.load(orders(3))
    each = reader()
    topic.load(orders(2, 3))
    first = reader(startingOffsets=json.dumps({"orders": {"0": 1}}))
    batch = first.next(first.begin())
    topic.load(orders(2, 5))

    assert each.numbers(LogOffset.from_json(json.loads(json.dumps(batch.to_json())))) == [
        1,
        2,
        3,
        4,
    ]


def test_offsets_have_the_same_text_each_time(store, topic, reader):
    topic.load(orders(3))
    each = reader(**EARLIEST)
    text = json.dumps(each.next(each.begin()).to_json())
    assert json.dumps(LogOffset.from_json(json.loads(text)).to_json()) == text
    said = json.loads(text)["orders"]["0"]
    assert [said["begin"], said["end"]] == [0, 3]
    assert said["last"] == topic.browse().column("_message_id")[-1].as_py()


@pytest.mark.parametrize(
    ("begin", "end", "numbers"),
    [
        ("earliest", "latest", range(10)),
        (2, "latest", range(2, 10)),
        (-2, 4, range(4)),
        (4, -1, range(4, 10)),
        (8, 3, ()),
    ],
)
def test_ranges_of_a_batch_read(store, topic, reader, begin, end, numbers):
    topic.load(orders(5))
    topic.load(orders(5, 5))
    begin, end = (
        at if isinstance(at, str) else json.dumps({"orders": {"0": at}}) for at in (begin, end)
    )
    assert reader(startingOffsets=begin, endingOffsets=end).numbers() == [*numbers]


def test_times_say_where_a_read_begins_and_ends(store, topic, reader):
    topic.load(orders(5))
    log_earlier(store, 7_200)
    topic.load(orders(5, 5))
    log_earlier(store, 7_200)
    topic.load(orders(5, 10))
    three, one = (int((time.time() - hours * 3_600) * 1e3) for hours in (3, 1))

    assert reader(startingTimestamp=three).numbers() == [*range(5, 15)]
    assert reader(startingTimestamp=three, endingTimestamp=one).numbers() == [*range(5, 10)]
    late = reader(startingTimestamp=int(time.time() * 1e3) + 60_000)
    start = late.begin()
    topic.load(orders(1, 15))
    assert late.numbers(late.next(start)) == [15]


def test_a_limit_takes_from_each_shard_in_proportion(store, reader):
    queue = make_queue(store, shards=2, key="customer", log="7 days")
    queue.load([{"number": n, "customer": "few" if n % 10 == 0 else "many"} for n in range(100)])
    each = reader(**EARLIEST)
    start, seen, sizes = each.begin(), [], []
    while (batch := each.next(start, 10)) is not start:
        seen += each.numbers(batch)
        sizes.append(sorted(at.end - at.begin for at in batch.ranges.values()))
        start = batch
    assert sorted(seen) == [*range(100)]
    assert sizes == [[1, 9]] * 10


def test_a_run_that_ends_now_reads_what_is_there(store, topic, reader):
    topic.load(orders(3))
    each = reader(**EARLIEST)
    each.session.set_horizon()
    topic.load(orders(3, 3))
    batch = each.next(each.begin())
    assert each.numbers(batch) == [0, 1, 2]
    assert each.next(batch) is batch


@pytest.mark.parametrize("least", [None, 3, 8, 1000])
def test_large_shards_are_divided(store, topic, reader, least):
    topic.load(orders(10))
    topic.load(orders(20, 10))
    each = reader(**({} if least is None else {"minPartitions": least}))
    parts = each.partitions()
    assert len(parts) == min(least or 1, 30)
    assert sorted(row["_offset"] for row in each.rows()) == [*range(30)]


def test_a_selector_skips_rows_by_statistics_and_selects_in_the_others(store, reader):
    make_filled(store, 100, each=10, attributes=["number"], log="7 days")
    each = reader(selector="number >= 35 AND number < 52")
    [part] = each.partitions()
    assert [len(task) for task in part.plan.tasks] == [10, 10, 10]
    rows = each.rows()
    assert [row["number"] for row in rows] == [row["_offset"] for row in rows] == [*range(35, 52)]


def test_a_projection_reads_only_its_columns(store, topic, reader):
    topic.load(orders(3))
    each = reader(selector="customer <> 'customer-1'")
    for names in (["_offset"], ["_offset", "amount"], ["_loaded_at", "number"]):
        each.schema = pa.schema([each.schema.field(name) for name in names])
        rows = each.rows()
        assert [list(row) for row in rows] == [names] * 2
        each.schema = reader().schema
    assert reader(includeMetadata="false").schema.names == ["number", "customer", "amount"]


def test_a_column_that_is_named_like_the_offset_keeps_its_values(store, reader):
    """Such a log can only be read without metadata."""
    schema = pa.schema([("number", pa.int64()), ("_offset", pa.string())])
    queue = make_queue(store, schema=schema, log="7 days")
    rows = [{"number": n, "_offset": f"at {n}"} for n in range(3)]
    queue.load(rows)
    with pytest.raises(SchemaMismatch, match="has a column '_offset' of its own"):
        reader()
    assert reader(includeMetadata="false").rows() == rows
    assert reader(includeMetadata="false", selector="_offset = 'at 1'").numbers() == [1]


def test_two_queues(store, topic, reader):
    other = make_queue(store, "others", log="7 days")
    topic.load(orders(3))
    other.load(orders(2, 10))
    each = reader(queues="orders,others", **EARLIEST)
    batch = each.next(each.begin())
    assert sorted(each.numbers(batch)) == [0, 1, 2, 10, 11]
    with pytest.raises(BadOption, match="belongs to the logs of 'orders', 'others'"):
        reader().next(batch)


def test_new_columns_are_refused_unless_columns_were_chosen(store, topic, reader):
    each, whole = reader(**EARLIEST), reader(all_columns=True, **EARLIEST)
    start = each.begin()
    topic.load(orders(1))
    topic.admin.add_columns(pa.schema([("note", pa.string())]))
    topic.load([{"number": 1, "note": "new"}])
    batch = each.next(start)
    assert each.numbers(batch) == [0, 1]
    with pytest.raises(SchemaMismatch, match="new column 'note'"):
        whole.partitions(batch)
    assert [row["note"] for row in reader().rows()] == [None, "new"]


def test_trimmed_messages_fail_a_query_or_are_passed_over(store, topic, reader):
    topic.load(orders(3))
    each, tolerant = reader(**EARLIEST), reader(failOnDataLoss="false", **EARLIEST)
    start = each.begin()
    batch = each.next(start)
    trim(store, topic)
    topic.load(orders(2, 3))

    with pytest.raises(
        OffsetsLost, match=r"offsets 0 to 2 of shard 0 were trimmed.*failOnDataLoss"
    ):
        each.next(start)
    moved = tolerant.next(start)
    assert tolerant.numbers(moved) == [3, 4]
    assert moved.ranges["orders", 0][:2] == (3, 5)
    # A batch that was logged is never changed.
    for one in (each, tolerant):
        with pytest.raises(OffsetsLost, match=r"offsets 0 to 2 of shard 0 .*a new checkpoint"):
            one.partitions(batch)
    assert tolerant.numbers(moved) == each.numbers(each.next(batch)) == [3, 4]
    said = json.dumps({"orders": {"0": 1}})
    with pytest.raises(OffsetsLost, match="offsets 1 to 2"):
        reader(startingOffsets=said).numbers()
    assert reader(startingOffsets=said, failOnDataLoss="false").numbers() == [3, 4]


def test_a_file_that_vacuum_removes_while_it_is_read_is_no_damage(store, topic, reader):
    topic.load(orders(MANY))
    topic.delete(topic.fire("all"))
    each = reader()
    [part] = each.partitions()
    trim(store, topic)
    store.admin.vacuum(grace=0)
    with pytest.raises(OffsetsLost, match=f"offsets 0 to {MANY - 1} of shard 0 is gone"):
        [*part.batches(each.schema)]
    assert store.admin.fsck(deep=True).to_pylist() == []


def test_a_message_that_is_another_one_is_noticed(store, topic, reader):
    topic.load(orders(3))
    each = reader(**EARLIEST)
    batch = each.next(each.begin())
    [[key, at]] = batch.ranges.items()
    for other in (LogRange(0, 3, at.last + 1, at.at), LogRange(0, 3, at.last, at.at - 1)):
        wrong = LogOffset({key: other})
        for ask in (reader().next, reader().partitions):
            with pytest.raises(
                OffsetsLost, match=r"another message at offset 2 of shard 0.*restored"
            ):
                ask(wrong)
    beyond = LogOffset({key: LogRange(3, 9, 1, 1)})
    for ask in (reader().next, reader().partitions):
        with pytest.raises(OffsetsLost, match="ends at offset 3, and not at 9"):
            ask(beyond)


def test_what_cannot_be_read(store, topic, reader):
    make_queue(store, "plain")
    with pytest.raises(BadOption, match="queue 'plain' has no log: set log on it"):
        reader(queue="plain").begin()
    with pytest.raises(BadOption, match="a sideline has no log"):
        reader(queue="orders_SIDELINE")
    with pytest.raises(BadOption, match=r"an offset for each shard .*orders: 0"):
        reader(startingOffsets=json.dumps({"orders": {"0": 1, "1": 1}})).begin()
    with pytest.raises(
        BadOption, match=r"offset 1 is after the latest one of shard 0 .*'orders', 0"
    ):
        reader(endingOffsets=json.dumps({"orders": {"0": 1}})).numbers()
    each = reader()
    start = each.begin()
    drop(topic)
    with pytest.raises(
        NoSuchQueue, match="queue 'orders' was dropped; if there is a new one, open"
    ):
        each.next(start)


def test_a_queue_that_was_created_anew_is_noticed(store, topic, reader):
    topic.load(orders(3))
    each = reader(**EARLIEST)
    before = each.next(each.begin())
    drop(topic)
    new = make_queue(store, log="7 days")
    for loaded, what in ((0, "ends at offset 0"), (5, "has another message at offset 2")):
        new.load(orders(loaded))
        with pytest.raises(OffsetsLost, match=f"{what}.*'orders' was dropped and created anew, or"):
            reader().next(before)


def test_a_queue_that_was_created_anew_with_fewer_shards_is_read_if_nothing_was_read(store, reader):
    queue = make_queue(store, shards=3, log="7 days")
    start = reader().begin()
    drop(queue)
    make_queue(store, log="7 days").load(orders(2))

    each = reader()
    assert each.numbers(each.next(start)) == [0, 1]


def test_a_dropped_subscription_is_named_once_its_log_is_gone(store, topic, reader):
    billing = store.subscribe("billing", to="orders")
    each = reader(queue="billing")
    start = each.begin()
    drop(billing)
    topic.load(orders(3))
    assert each.numbers(each.next(start)) == [0, 1, 2]
    topic.admin.change_settings(log=None)
    with pytest.raises(NoSuchQueue, match="queue 'billing' was dropped"):
        each.next(start)


def test_a_subscription_stands_for_its_root(store, topic, reader):
    store.subscribe("billing", to="orders")
    topic.load(orders(3))
    rows = reader(queue="billing").rows()
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert {row["_queue"] for row in rows} == {"billing"}


def test_merged_rows_are_the_same_messages(store, topic, reader):
    for number in range(10):
        topic.load(orders(3, 3 * number))
    log_in_a_minute(store)
    each = reader(**EARLIEST)
    start = each.begin()
    batches = [first := each.next(start, 7), each.next(first)]
    before = [each.rows(batch) for batch in batches]
    topic.delete(topic.fire("all"))
    assert topic.admin.compact()
    assert [reader().rows(batch) for batch in batches] == before
    # Messages are logged after they are loaded, except in a test that has set the time back.
    log_earlier(store, -3_600)
    moment = f"TIMESTAMP '{before[1][-1]['_loaded_at']:%Y-%m-%d %H:%M:%S.%f}'"
    late = reader(selector=f"_loaded_at >= {moment}").numbers()
    assert late[-1] == 29
    topic.load(orders(1, 30))
    assert reader().numbers(reader().next(batches[1])) == [30]


def test_the_selector_of_a_subscription_holds_too(store, topic, reader):
    store.subscribe("billing", to="orders", selector="number > 0")
    topic.load(orders(4))
    assert reader(queue="billing").numbers() == [1, 2, 3]
    assert reader(queue="billing", selector="number < 3 OR number = 0").numbers() == [1, 2]
    with pytest.raises(BadOption, match="name the queue whose log it reads"):
        reader(queue="billing", selector="operator:truth")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxOffsetsPerTrigger": "5", "read": "queue"}, 'set .option."read", "log".'),
        ({"consumer": "me", "tasks": "all"}, "remove consumer, tasks"),
        ({"startingOffsets": "now"}, "earliest, latest, or an offset"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "earliest, latest, or an offset"),
        ({"startingOffsets": "[1]"}, "earliest, latest, or an offset"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "or startingTimestamp, not both"),
    ],
)
def test_options_that_do_not_fit(options, said):
    with pytest.raises(BadOption, match=said):
        SourceOptions.of({"path": "/tmp/store", "queue": "orders", "read": "log", **options})


@pytest.mark.parametrize(
    ("options", "streams", "said"),
    [
        ({"endingOffsets": "latest"}, True, "for spark.read"),
        ({"endingTimestamp": "5"}, True, "for spark.read"),
        ({"maxOffsetsPerTrigger": "5"}, False, "for spark.readStream"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, False, "cannot begin at latest"),
        ({"endingOffsets": "earliest"}, False, "cannot end at earliest"),
    ],
)
def test_options_that_only_a_stream_or_a_batch_has(options, streams, said):
    parsed = SourceOptions.of({"path": "/tmp/store", "queue": "orders", "read": "log", **options})
    with pytest.raises(BadOption, match=said):
        parsed.log.check(streams=streams)


def test_a_restored_catalog_is_noticed(store, topic, reader, tmp_path):
    topic.load(orders(3))
    store.admin.backup(tmp_path / "backup")
    topic.load(orders(2, 3))
    each = reader(**EARLIEST)
    batch = each.next(each.begin())
    Store.restore(tmp_path / "backup", tmp_path / "again")
    with Store.open(tmp_path / "again") as again:
        queue = again.queue("orders")
        other = Reader(again, False, EARLIEST)
        with pytest.raises(OffsetsLost, match="ends at offset 3, and not at 5"):
            other.next(batch)
        queue.load(orders(4, 100))
        for ask in (other.next, other.partitions):
            with pytest.raises(
                OffsetsLost, match=r"another message at offset 4.*startingTimestamp="
            ):
                ask(batch)
        assert other.numbers() == [0, 1, 2, 100, 101, 102, 103]
        other.session.close()


def test_a_restore_to_a_time_when_the_log_was_the_same_is_noticed_too(
    store, topic, reader, tmp_path
):
    """Queues of the store, into which the query has copied messages since, are older again."""
    topic.load(orders(3))
    store.admin.backup(tmp_path / "backup")
    each = reader(**EARLIEST)
    batch = each.next(each.begin())
    Store.restore(tmp_path / "backup", tmp_path / "again")
    with Store.open(tmp_path / "again") as again:
        other = Reader(again, False, EARLIEST)
        for ask in (other.next, other.partitions):
            with pytest.raises(
                OffsetsLost, match=r"'orders'.*was restored.*new checkpoint.*failOnDataLoss"
            ):
                ask(batch)
        other.session.close()
        again.queue("orders").load(orders(2, 100))
        on = Reader(again, False, EARLIEST | {"failOnDataLoss": "false"})
        after = on.next(batch)
        assert on.partitions(after) is not None
        on.session.close()
        # From then on, the query is of the restored catalog.
        strict = Reader(again, False, EARLIEST)
        assert strict.next(after) == after
        strict.session.close()
