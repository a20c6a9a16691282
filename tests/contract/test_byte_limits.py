"""Limits in bytes count the memory that messages need once they are read, not the stored bytes."""

import pyarrow as pa
import pytest

from queue_core.errors import QueueFull
from tests.factories import make_queue

SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("text", pa.string())])
#: Text that compresses very well.
TEXT = "a" * 10_000
MIB = 1 << 20


def texts(count):
    """Messages of 10 KB each."""
    return pa.table({"number": range(count), "text": [TEXT] * count}, schema=SCHEMA)


@pytest.fixture(params=["zstd", None])
def queue(request, store):
    """A queue whose files are compressed, or not."""
    return make_queue(store, schema=SCHEMA, compression=request.param)


def sizes(queue, **limits):
    """The memory of each firing, until nothing waits."""
    while firing := queue.fire(**limits):
        yield firing.messages.select(SCHEMA.names).nbytes
        queue.delete(firing)


def test_a_firing_hands_out_what_fits_into_memory(queue):
    queue.load(texts(400))
    found = list(sizes(queue, max_bytes=MIB))
    assert len(found) >= 4
    assert all(size <= MIB for size in found)
    # The limit is used, too.
    assert all(size > MIB * 0.9 for size in found[:-1])


def test_so_do_sidelined_and_compacted_messages(queue, in_files):
    for _ in range(80):
        queue.load(texts(3))
    queue.admin.compact()
    queue.sideline(queue.fire("all"))

    found = list(sizes(queue, max_bytes=MIB, magazine="sideline"))

    assert found
    assert all(size <= MIB for size in found)


def test_a_bounded_queue_holds_as_much_as_fits_into_memory(store):
    queue = make_queue(store, schema=SCHEMA, compression="zstd", max_bytes=MIB, overflow="fail")
    queue.load(texts(90))
    with pytest.raises(QueueFull):
        queue.load(texts(90))


def test_a_small_load_counts_with_its_overhead(store):
    """Inlined segments are not compressed; a number alone needs more than its eight bytes."""
    queue = make_queue(store, schema=SCHEMA)
    queue.load([{"number": 1, "text": "a"}])
    (size,) = store.view("slices").column("bytes").to_pylist()
    assert size > 100
