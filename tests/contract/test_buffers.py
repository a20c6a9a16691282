"""Request and release: rows are written into prepared memory, which is loaded without a copy."""

import datetime as dt
import gc
import itertools
import sys
import threading
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from queue_core.errors import BadOption, QueueFull, SchemaMismatch
from queue_core.segments import format
from queue_core.segments.buffers import BufferPool
from tests.books import leftover_files
from tests.factories import make_queue

SIDE = 64
TILES = pa.schema(
    [
        pa.field("tile", pa.int32(), nullable=False),
        ("taken_at", pa.timestamp("us", tz="UTC")),
        ("exposure", pa.duration("us")),
        ("sharpness", pa.float32()),
        ("pixels", pa.list_(pa.float32(), SIDE * SIDE)),
        ("digest", pa.binary(4)),
    ]
)
WIDTHS = {"pixels": SIDE * SIDE, "digest": 4}


@pytest.fixture
def tiles(store):
    make_queue(store, "tiles", TILES)
    return store.queue("tiles", buffers=2)


def fill(buffer):
    numbers = np.arange(len(buffer))
    buffer["tile"][:] = numbers
    buffer["taken_at"][:] = np.datetime64("2026-01-02T03:04:05", "us")
    buffer["exposure"][:] = np.timedelta64(250, "us")
    buffer["sharpness"][:] = numbers / 2
    buffer["pixels"][:] = numbers[:, np.newaxis] + np.arange(SIDE * SIDE)
    buffer["digest"][:] = numbers[:, np.newaxis] % 256


def test_what_was_written_is_what_is_fired(tiles):
    with tiles.request(20, widths=WIDTHS) as buffer:
        fill(buffer)
    ids = tiles.load(buffer)

    firing = tiles.fire("all")
    assert firing.ids.to_pylist() == ids.to_pylist()
    row = firing.messages.slice(7, 1).to_pylist()[0]
    assert row["tile"] == 7
    assert row["taken_at"] == dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert row["exposure"] == dt.timedelta(microseconds=250)
    assert row["sharpness"] == 3.5
    assert row["pixels"] == list(range(7, 7 + SIDE * SIDE))
    assert row["digest"] == b"\x07" * 4
    # What nobody wrote is zero.
    tiles.load(tiles.request(2, widths=WIDTHS))
    (first, _) = tiles.fire("all").messages.to_pylist()
    assert (first["tile"], first["sharpness"], first["digest"]) == (0, 0.0, b"\0" * 4)
    assert first["pixels"] == [0.0] * (SIDE * SIDE)


def test_a_load_writes_from_where_the_rows_were_put(tiles, monkeypatch):
    """By addresses: the storage gets the buffer's own memory."""
    written = []

    # Only where bytes are written can be seen whether they were copied before.
    class Spy(format._Checksummed):
        def write(self, data):
            view = np.frombuffer(data, np.uint8)
            written.append((view.ctypes.data, view.nbytes))
            return super().write(data)

    monkeypatch.setattr(format, "_Checksummed", Spy)
    buffer = tiles.request(1000, widths=WIDTHS)
    fill(buffer)
    pixels = buffer["pixels"]
    start, stop = pixels.ctypes.data, pixels.ctypes.data + pixels.nbytes
    before = pa.total_allocated_bytes()

    tiles.load(buffer)

    inside = sum(size for address, size in written if start <= address and address + size <= stop)
    assert inside == pixels.nbytes
    assert pa.total_allocated_bytes() - before < pixels.nbytes / 10


def test_a_buffer_cannot_be_used_once_it_is_loaded(tiles):
    buffer = tiles.request(1, widths=WIDTHS)
    view = buffer["tile"]
    tiles.load(buffer)

    for use in (lambda: buffer["tile"], lambda: tiles.load(buffer), buffer.__enter__):
        with pytest.raises(BadOption, match="buffer of queue 'tiles' is loaded; request another"):
            use()
    with pytest.raises(ValueError, match="read-only"):
        view[:] = 1
    assert repr(buffer) == "<Buffer for 1 rows of 'tiles', loaded>"
    buffer.release()


def test_a_buffer_cannot_be_used_once_it_is_released(tiles):
    buffer = tiles.request(1, widths=WIDTHS)
    buffer.release()
    buffer.release()
    with pytest.raises(BadOption, match="released"):
        tiles.load(buffer)


def test_only_so_many_buffers_are_out(tiles):
    first, second = (tiles.request(1, widths=WIDTHS) for _ in range(2))

    for timeout in (0, 0.05):
        with pytest.raises(QueueFull, match="all 2 buffers are in use; load or release one"):
            tiles.request(1, timeout=timeout, widths=WIDTHS)
    tiles.load(first)
    third = tiles.request(1, timeout=0, widths=WIDTHS)
    second.release()
    tiles.request(1, timeout=0, widths=WIDTHS).release()
    third.release()


def test_who_waits_for_a_buffer_gets_the_next_that_is_free(tiles):
    held = [tiles.request(1, widths=WIDTHS) for _ in range(2)]
    got = threading.Event()

    def wait():
        tiles.request(1, widths=WIDTHS).release()
        got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not got.wait(0.05)
    held[0].release()
    assert got.wait(60)
    thread.join()


def test_a_buffer_that_is_forgotten_or_left_by_an_error_goes_back(tiles):
    tiles.request(1, widths=WIDTHS)
    gc.collect()
    with pytest.raises(KeyError), tiles.request(1, widths=WIDTHS) as left:
        raise KeyError
    for buffer in [left, *(tiles.request(1, timeout=0, widths=WIDTHS) for _ in range(2))]:
        buffer.release()


def test_the_garbage_collector_may_give_a_buffer_back_while_one_is_taken():
    """At any moment, and in the thread that takes it."""
    pool = BufferPool("tiles", pa.schema([("tile", pa.int32())]), 1)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for moment in range(100):
            lost = pool.request(1, {}, 0)
            lost.itself = lost
            del lost
            calls = itertools.count()
            sys.setprofile(lambda *_, at=moment, of=calls: next(of) == at and gc.collect())
            try:
                with suppress(QueueFull):
                    pool.request(1, {}, 0.05).release()
            finally:
                sys.setprofile(None)
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


def test_a_load_that_fails_gives_the_buffer_back_to_its_caller(store, tiles):
    tiles.admin.change_settings(max_size=1, overflow="fail")
    tiles.load(tiles.request(1, widths=WIDTHS))
    buffer = tiles.request(1, widths=WIDTHS)
    with pytest.raises(QueueFull, match="max_size=1"):
        tiles.load(buffer)

    buffer["tile"][:] = 9
    tiles.delete(tiles.fire("all"))
    tiles.load(buffer)
    assert tiles.fire("all").messages.column("tile").to_pylist() == [9]
    assert leftover_files(store) == set()


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.bool_(), pa.decimal128(10, 2), pa.list_(pa.string())]
)
def test_a_column_without_a_width_is_named(store, kind):
    told = r"column 'note' of type .* has no fixed width"
    queue = make_queue(store, "other", pa.schema([("number", pa.int64()), ("note", kind)]))
    with pytest.raises(SchemaMismatch, match=told), queue.request(3) as buffer:
        buffer["note"]
    needed = make_queue(store, "needed", pa.schema([pa.field("note", kind, nullable=False)]))
    with pytest.raises(SchemaMismatch, match=told):
        needed.request(3)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.list_(pa.string())])
def test_a_column_that_others_have_added_is_null_if_nobody_asks_for_it(store, kind):
    make_queue(store, schema=pa.schema([("number", pa.int64())]))
    store.queue("orders").admin.add_columns(pa.schema([("note", kind)]))
    queue = store.queue("orders")

    buffer = queue.request(2)
    buffer["number"][:] = 7
    queue.load(buffer)

    messages = queue.fire("all").messages
    assert messages.column("number").to_pylist() == [7, 7]
    assert messages.column("note").null_count == 2


def test_a_width_has_to_be_said(tiles):
    told = r"'pixels' of type .*: widths=\{'pixels': …\}"
    with pytest.raises(SchemaMismatch, match=told), tiles.request(3, widths={"digest": 4}) as given:
        given["pixels"]
    for rows, widths, told in (
        (3, {"tile": 2}, "'tile' is int32, which has a fixed width"),
        (3, {"pixel": 2}, "no column 'pixel'; did you mean 'pixels'"),
        (3, {"digest": 0}, "'digest': 0: use a whole number"),
        (1 << 20, {}, "too many for one buffer"),
        (0, {}, "rows=0"),
    ):
        with pytest.raises(BadOption, match=told):
            tiles.request(rows, widths=WIDTHS | widths)
    # None of them is out.
    for buffer in [tiles.request(1, timeout=0, widths=WIDTHS) for _ in range(2)]:
        buffer.release()


def test_a_buffer_is_of_one_queue(store, tiles):
    other = make_queue(store, "others", TILES)
    buffer = tiles.request(1, widths=WIDTHS)

    with pytest.raises(BadOption, match="buffer of queue 'tiles' cannot be loaded into 'others'"):
        other.load(buffer)
    with pytest.raises(BadOption, match="no column 'tiles'; did you mean 'tile'"):
        buffer["tiles"]
    with pytest.raises(BadOption, match="buffers=0"):
        store.queue("tiles", buffers=0)


def test_a_key_puts_the_rows_in_order(store):
    queue = make_queue(store, "keyed", TILES, shards=4, key="tile")
    buffer = queue.request(100, widths=WIDTHS)
    fill(buffer)
    ids = queue.load(buffer).to_pylist()

    messages = queue.fire("all").messages
    found = dict(
        zip(messages.column("_message_id").to_pylist(), messages["tile"].to_pylist(), strict=True)
    )
    assert [found[id] for id in ids] == list(range(100))


def test_times_that_nobody_wrote_are_null(store):
    """They would be those of 1970: each message would have expired."""
    times = [(name, pa.timestamp("us", "UTC")) for name in ("_expires_at", "_hold_until")]
    queue = make_queue(store, schema=pa.schema([("number", pa.int64()), *times]))
    for given in ({}, {"ttl": 3600, "hold": 0}):
        buffer = queue.request(1)
        buffer["number"][:] = 7
        queue.load(buffer, **given)

    messages = queue.fire("all").messages
    assert messages.column("number").to_pylist() == [7, 7]
    for name, _ in times:
        assert messages.column(name).is_null().to_pylist() == [True, False]
