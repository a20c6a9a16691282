"""Tables as Arrow IPC streams: the bytes that the catalog stores and Spark's plans carry."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa


def pack(table: pa.Table, compression: Literal["zstd", "lz4"] | None = None) -> bytes:
    """Return a table as the bytes of an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    # Transactions wait for it: other threads would take longer to begin than to compress.
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack(data: bytes) -> pa.Table:
    """Return the table that `pack` wrote, whatever its compression."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
