"""Segments are ordinary Arrow data, and every chunk is checked."""

import io

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import DamagedSegment
from queue_core.segments.format import SegmentWriter, decode, inline, pack_chunks, unpack_chunks
from queue_core.values.model import Chunk
from tests.factories import ORDERS, chunked, make_segment, orders

BATCHES = [orders(3, 0), orders(1, 3), orders(200, 4)]
BATCHES = [table.to_batches()[0] for table in BATCHES]

CHUNKS = st.lists(
    st.builds(
        Chunk,
        st.integers(0, 1 << 20),
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 40),
        st.integers(0, (1 << 64) - 1),
    )
)


def written(compression=None, batches=BATCHES):
    sink = io.BytesIO()
    with SegmentWriter(sink, ORDERS, compression) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue(), tuple(writer.chunks), writer.bytes


def chunk_of(data, chunk):
    return pa.py_buffer(data[chunk.offset : chunk.offset + chunk.length])


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_segment_file_is_an_arrow_file_that_any_tool_opens_and_read_chunk_by_chunk(compression):
    data, chunks, size = written(compression)

    assert pa.ipc.open_file(pa.py_buffer(data)).read_all() == pa.Table.from_batches(BATCHES)
    assert size == len(data)
    check_chunks(data, chunks)


def check_chunks(data, chunks):
    """Each chunk is a batch, with the checksum xxh3."""
    for chunk, batch in zip(chunks, BATCHES, strict=True):
        encoded = chunk_of(data, chunk)
        assert chunk.rows == batch.num_rows
        assert chunk.checksum == xxhash.xxh3_64_intdigest(bytes(encoded))
        assert decode(encoded, chunk, ORDERS, "it") == batch


def test_inlined_bytes_hold_each_batch_as_a_chunk():
    data, chunks = inline(BATCHES)

    assert sum(chunk.length for chunk in chunks) == len(data)
    check_chunks(data, chunks)
    assert inline([]) == (b"", ())
    assert written(batches=[])[1] == ()


@given(CHUNKS)
def test_chunks_survive_the_way_to_bytes_and_back(chunks):
    assert unpack_chunks(pack_chunks(chunks)) == tuple(chunks)


def test_the_bytes_of_chunks_are_pinned():
    """They are stored for ever: rows, offset, length and checksum, little-endian."""
    packed = pack_chunks([Chunk(1, 2, 3, 0xFFFFFFFFFFFFFFFF)])

    assert packed.hex() == "01000000" + "0200000000000000" + "0300000000000000" + "ff" * 8


@given(st.data())
def test_any_bit_that_flips_is_noticed(data):
    encoded, (chunk,) = inline(BATCHES[:1])
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    altered = bytearray(encoded)
    altered[bit // 8] ^= 1 << bit % 8

    with pytest.raises(DamagedSegment, match=r"segment a/b\.arrow is altered"):
        decode(pa.py_buffer(bytes(altered)), chunk, ORDERS, "a/b.arrow")


@given(st.data())
def test_any_byte_that_is_missing_is_noticed(data):
    encoded, (chunk,) = inline(BATCHES[:1])
    length = data.draw(st.integers(0, len(encoded) - 1))

    with pytest.raises(DamagedSegment, match=rf"segment a/b\.arrow is torn: {length} of "):
        decode(pa.py_buffer(encoded[:length]), chunk, ORDERS, "a/b.arrow")


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 30), st.integers(1, 30))
def test_only_chunks_with_rows_of_a_range_are_wanted(sizes, start, length):
    chunks = chunked(Chunk(size, 0, 0, 0) for size in sizes)
    stop = start + length

    wanted = make_segment(chunks=chunks).narrowed(start, stop).chunks

    assert wanted == tuple(
        (first, chunk)
        for first, chunk in chunks
        if set(range(first, first + chunk.rows)) & set(range(start, stop))
    )
