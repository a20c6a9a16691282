"""Load: messages come in, durable, each with an id of its own and in order."""

import datetime as dt
from collections import defaultdict

import pandas as pd
import pyarrow as pa
import pytest

from queue_core.errors import SchemaMismatch, StorageUnavailable
from queue_core.segments import distributor, stager
from tests.dump import dump
from tests.factories import ORDERS, make_filled, make_queue, make_stager, numbers_of, orders

pytestmark = pytest.mark.each_catalog


def by_id(messages):
    return dict(zip(messages.column("_message_id").to_pylist(), numbers_of(messages), strict=True))


@pytest.mark.parametrize("key", [None, "customer"])
def test_ids_are_in_the_order_of_the_rows_however_the_rows_are_cut(
    store, key, monkeypatch, in_files
):
    monkeypatch.setattr(stager, "CHUNK_ROWS", 7)
    monkeypatch.setattr(stager, "RUN_BYTES", 1000)
    monkeypatch.setattr(stager, "MAX_SEGMENT_ROWS", 120)
    monkeypatch.setattr(distributor, "SPREAD_BYTES", 5000)
    queue = make_queue(store, shards=3, key=key)
    rows = pa.concat_tables([orders(333), orders(1, 333), orders(166, 334)])

    ids = queue.load(rows).to_pylist()

    assert len(store.storage.list()) >= 5
    assert by_id(queue.fire("all").messages) == dict(zip(ids, range(500), strict=True))


def test_messages_of_one_key_stay_in_one_shard_in_order(store):
    """In every load, and in every form of rows."""
    queue = make_queue(store, shards=5, key="customer")
    queue.load(orders(40))
    queue.load(orders(40, 40).to_pylist())
    queue.load(pa.concat_tables([orders(1, 80), orders(39, 81)]))

    shards, numbers = defaultdict(set), defaultdict(list)
    for message in queue.fire("all").messages.to_pylist():
        shards[message["customer"]].add(message["_shard"])
        numbers[message["customer"]].append(message["number"])

    assert all(len(its_shards) == 1 for its_shards in shards.values())
    assert all(its == sorted(its) and len(its) == 12 for its in numbers.values())
    assert len(set.union(*shards.values())) > 1


def test_loads_without_a_key_go_to_the_shards_in_turn_and_large_ones_are_spread(store, monkeypatch):
    queue = make_queue(store, shards=4)
    for number in range(8):
        queue.load(orders(1, number))
    assert sorted(queue.browse().column("_shard").to_pylist()) == [0, 0, 1, 1, 2, 2, 3, 3]

    monkeypatch.setattr(distributor, "SPREAD_BYTES", 1000)
    queue.load(orders(400))
    waiting = queue.metadata().filter(pa.compute.field("magazine") == "main").column("waiting")
    assert waiting.to_pylist() == [102, 102, 102, 102]


def test_a_small_load_makes_no_file_and_a_large_one_makes_one(store):
    queue = make_queue(store)

    queue.load(orders(10))
    assert store.storage.list() == {}

    queue.load(orders(10_000, 10))
    (location,) = store.storage.list()
    assert location.startswith("segments/orders/")
    assert location.endswith(".arrow")
    assert numbers_of(queue.fire("all").messages) == list(range(10_010))
    # Any tool for Arrow can read it.
    with store.storage.opened(location) as handle:
        assert numbers_of(pa.ipc.open_file(handle).read_all()) == list(range(10, 10_010))


def test_a_new_message_is_fresh(store):
    queue = make_queue(store, "fresh")
    before = store.catalog.now()
    (id,) = queue.load([{"number": 7}]).to_pylist()
    after = store.catalog.now()

    (message,) = queue.peek().to_pylist()

    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    loaded_at = (message.pop("_loaded_at") - epoch) // dt.timedelta(microseconds=1)
    assert before <= loaded_at <= after
    assert message == {
        "number": 7,
        "customer": None,
        "amount": None,
        "_message_id": id,
        "_queue": "fresh",
        "_shard": 0,
        "_attempt": 0,
        "_fired_at": None,
    }


@pytest.mark.parametrize("rows", [[], ORDERS.empty_table()])
def test_loading_no_rows_changes_nothing(store, rows):
    queue = make_queue(store)
    before = dump(store)
    assert queue.load(rows).to_pylist() == []
    assert dump(store) == before


def test_a_load_is_seen_by_every_other_store_at_once(store, address):
    make_queue(store).load(orders(3))
    with type(store)(address) as other:
        fired = other.queue("orders").fire("all").messages
    assert numbers_of(fired) == [0, 1, 2]
    # With their metadata columns, they can be loaded again elsewhere.
    assert len(make_queue(store, "another").load(fired)) == 3


@pytest.mark.parametrize("count", [10, 10_000])
def test_rows_with_a_null_key_are_refused_and_leave_nothing_behind(store, count):
    queue = make_queue(store, shards=4, key="customer")
    nulls = pa.table({"number": [1], "customer": [None]}).cast(
        pa.schema([ORDERS.field("number"), ORDERS.field("customer")])
    )
    rows = pa.concat_tables([orders(count).drop_columns(["amount"]), nulls])
    before = dump(store)

    with pytest.raises(SchemaMismatch, match="'orders': key column 'customer' is null in 1 rows"):
        queue.load(rows)
    assert dump(store) == before


@pytest.mark.parametrize("key", [None, "customer"])
def test_a_storage_that_fails_half_way_leaves_nothing_behind(store, key, monkeypatch):
    monkeypatch.setattr(stager, "CHUNK_ROWS", 500)
    monkeypatch.setattr(stager, "MAX_SEGMENT_ROWS", 1000)
    queue = make_queue(store, key=key, shards=2)
    before = dump(store)
    monkeypatch.setattr(store.storage, "new_location", fails_after(2, store.storage.new_location))

    with pytest.raises(StorageUnavailable, match="no more"):
        queue.load(orders(10_000))
    assert dump(store) == before


def fails_after(times, call):
    calls = iter(range(times))

    def failing(*args):
        if next(calls, None) is None:
            raise StorageUnavailable("no more")
        return call(*args)

    return failing


def test_memory_of_a_writer_is_bounded_by_its_runs(store, monkeypatch):
    """A stager keeps at most the rows of one run in memory."""
    monkeypatch.setattr(stager, "RUN_BYTES", 50_000)
    queue = make_queue(store)
    writer = make_stager(queue)
    batch = orders(500).to_batches()[0]

    for _ in range(100):
        writer.add(batch)
    staged = writer.finish()

    batches_of_a_run = -(-50_000 // batch.nbytes)
    assert max(len(run) for segment in staged for run in segment.runs) <= 500 * batches_of_a_run
    assert sum(segment.rows for segment in staged) == 50_000
    writer.discard()
    assert store.storage.list() == {}


@pytest.mark.each_catalog(False)
def test_more_rows_than_a_segment_can_have_become_several(store):
    queue = make_queue(store)
    count = (1 << 20) + 100_000
    ids = queue.load(orders(count)).to_pylist()
    sizes = store.view("slices").select(["segment_id", "messages"]).to_pydict()
    assert len(set(sizes["segment_id"])) == 2
    assert sum(sizes["messages"]) == count
    assert queue.fire(3, selector=f"number >= {count - 3}").ids.to_pylist() == ids[-3:]


@pytest.mark.parametrize("labels", [None, [7, 8, 9]])
def test_data_frames_are_rows(store, labels):
    queue = make_queue(store)
    frame = pd.DataFrame({"number": [1, 2, 3], "customer": ["a", None, "c"]}, index=labels)
    assert len(queue.load(frame)) == 3
    # Other libraries give their data by the same interface.
    assert len(queue.load(orders(2).to_reader())) == 2
    assert numbers_of(queue.peek(9)) == [1, 2, 3, 0, 1]
    assert queue.peek(3).column("customer").to_pylist() == ["a", None, "c"]


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize(
    ("rows", "culprit"),
    [
        (pa.table({"number": [1], "nmuber": [2]}), "no column 'nmuber'; did you mean 'number'?"),
        ([{"number": 1, "custmer": "a"}], "no column 'custmer'; did you mean 'customer'?"),
        (pa.table({"number": ["one"]}), "column 'number' is int64; string values do not fit"),
        ([{"number": 1.5}], "column 'number' is int64; double values do not fit"),
        ([{"number": 1, "amount": "x"}], "column 'amount' is double"),
        (pd.DataFrame({"number": [1], "colour": ["red"]}), "no column 'colour'"),
        (pd.DataFrame({"number": [1, "two"]}), "Arrow cannot read the DataFrame"),
        (pa.table({"customer": ["a"]}), "column 'number' is required and missing"),
        ([{"number": None}], "column 'number' may not be null"),
        ("rows", "a list of dicts or of objects of one class, not str"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_change_nothing(store, rows, culprit):
    queue = make_filled(store, 5, shards=3)
    before = dump(store)
    with pytest.raises(SchemaMismatch) as refusal:
        queue.load(rows)
    assert "queue 'orders'" in str(refusal.value)
    assert culprit in str(refusal.value)
    assert dump(store) == before
