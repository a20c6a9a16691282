"""Tables packed as Arrow IPC streams."""

import pyarrow as pa
import pytest

from queue_core.values.ipc import pack, unpack


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize(
    "table",
    [
        pa.table({"id": [1, 2, None], "text": ["a", None, "c"]}),
        pa.table({"id": pa.array([], pa.int64())}),
        pa.table({"word": pa.array(["a", "b", "a"]).dictionary_encode()}),
        pa.concat_tables([pa.table({"id": [1]}), pa.table({"id": [2]})]),
    ],
)
def test_an_unpacked_table_is_the_packed_one(table, compression):
    assert unpack(pack(table, compression)).equals(table)


def test_packed_bytes_are_those_of_arrows_own_stream():
    table = pa.table({"id": [1, 2, 3]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert pack(table) == sink.getvalue().to_pybytes()


def test_zstd_makes_repetitive_tables_smaller():
    table = pa.table({"id": [7] * 10_000})
    assert len(pack(table, "zstd")) < len(pack(table)) / 10
