"""Types: loaded values of every type come back unchanged, from files and from the catalog."""

from pathlib import Path

import pyarrow as pa
import pytest

from queue_core.segments import stager
from queue_core.segments.shard_hash import can_be_key
from tests.arrow_types import CONVERTED, KEPT, array
from tests.factories import make_queue

LOADED = {name: (kind, values, kind) for name, (kind, values) in KEPT.items()} | {
    name: (kind, values, kept) for name, (kind, kept, values) in CONVERTED.items()
}


def wide_table():
    """One column of each type, and rows of all their values, nulls among them."""
    rows = 12
    columns = {
        name: array([values[row % len(values)] for row in range(rows)], kind)
        for name, (kind, values, _) in LOADED.items()
    }
    return pa.table(columns)


def expected(table):
    return [
        pa.array(table.column(name).to_pylist(), kept).to_pylist()
        for name, (_, _, kept) in LOADED.items()
    ]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_every_type_comes_back_as_it_was(store, inlined, compression, monkeypatch):
    monkeypatch.setattr(stager, "CHUNK_ROWS", 5)
    table = wide_table()
    queue = make_queue(store, schema=table.schema, compression=compression)

    ids = queue.load(table)
    messages = queue.fire("all").messages

    assert len(store.storage.list()) == (0 if inlined else 1)
    assert [messages.column(name).to_pylist() for name in LOADED] == expected(table)
    messages.validate(full=True)

    for row in (7, 2, 11):
        queue.reload(ids[row : row + 1])
    some = queue.fire("all").messages
    assert [some.column(name).to_pylist() for name in LOADED] == [
        [values[row] for row in (2, 7, 11)] for values in expected(table)
    ]


@pytest.mark.parametrize("name", [name for name, (kind, _) in KEPT.items() if can_be_key(kind)])
def test_every_type_that_can_be_a_key_picks_a_shard(store, name):
    kind, values = KEPT[name]
    present = [value for value in values if value is not None]
    schema = pa.schema([("k", kind), ("n", pa.int64())])
    queue = make_queue(store, schema=schema, shards=7, key="k")

    for number in range(3):
        queue.load([{"k": value, "n": number} for value in present])

    messages = queue.fire("all").messages
    for value in present:
        of_value = [row for row in messages.to_pylist() if row["k"] == value]
        assert [row["n"] for row in of_value] == [0, 1, 2]
        assert len({row["_shard"] for row in of_value}) == 1


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression_makes_files_smaller(store, storage_uri, compression):
    rows = pa.table({"text": ["the same text again and again"] * 20_000})
    plain = make_queue(store, "plain", rows.schema)
    small = make_queue(store, "small", rows.schema, compression=compression)

    plain.load(rows)
    (uncompressed,) = Path(storage_uri).rglob("*.arrow")
    small.load(rows)
    (compressed,) = set(Path(storage_uri).rglob("*.arrow")) - {uncompressed}

    assert compressed.stat().st_size < uncompressed.stat().st_size / 5
    assert small.fire("all").messages.column("text").to_pylist() == rows.column("text").to_pylist()


def test_a_changed_compression_leaves_older_messages_readable(store):
    rows = pa.table({"text": ["x" * 100] * 2000})
    queue = make_queue(store, schema=rows.schema)
    for compression in (None, "lz4", "zstd", None):
        queue.admin.change_settings(compression=compression)
        queue.load(rows)

    assert len(queue.fire("all")) == 8000


@pytest.mark.parametrize("size", [5 << 20, 40 << 20])
def test_a_single_very_large_message_comes_through(store, size):
    queue = make_queue(store, schema=pa.schema([("data", pa.binary())]))
    queue.load([{"data": b"a"}, {"data": b"x" * size}, {"data": b"b"}])

    lengths = [len(data) for data in queue.fire("all").messages.column("data").to_pylist()]

    assert lengths == [1, size, 1]


def test_a_wide_queue_of_many_columns_comes_through(store):
    names = [f"column {number}" for number in range(500)]
    queue = make_queue(store, schema=pa.schema([(name, pa.int32()) for name in names]))

    queue.load([dict.fromkeys(names, 7)])

    assert queue.fire("all").messages.select(names).to_pylist() == [dict.fromkeys(names, 7)]
