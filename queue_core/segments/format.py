"""Encode rows as Arrow IPC bytes, and decode them chunk by chunk with checksums. Touches no file.

A segment file is an ordinary Arrow IPC file that any Arrow tool opens. The catalog also knows the
position of each record batch in it, so that a reader fetches and checks only the batches it needs.
The catalog holds small segments itself, in the same encoding without file header and footer.
"""

import struct
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import xxhash

from queue_core.errors import DamagedSegment
from queue_core.values.model import Chunk

_CHUNK = struct.Struct("<IQQQ")


class SegmentWriter(AbstractContextManager["SegmentWriter"]):
    """Writes record batches into an Arrow file and remembers the position of each."""

    def __init__(self, sink: Any, schema: pa.Schema, compression: str | None = None) -> None:
        self._sink = _Checksummed(sink)
        self._writer = pa.ipc.new_file(
            self._sink.stream, schema, options=pa.ipc.IpcWriteOptions(compression=compression)
        )
        # The file's header is written with the first batch and must not count as part of a chunk.
        nothing = [pa.nulls(0, field.type) for field in schema]
        self._writer.write_batch(pa.RecordBatch.from_arrays(nothing, schema=schema))
        self.chunks: list[Chunk] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append *batch* as one chunk."""
        offset = self._sink.start()
        self._writer.write_batch(batch)
        length, checksum = self._sink.finish()
        self.chunks.append(Chunk(batch.num_rows, offset, length, checksum))

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    @property
    def bytes(self) -> int:
        """Bytes written so far."""
        return self._sink.position


class _Checksummed:
    """A file-like object that checksums the bytes between `start` and `finish`."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.position = 0
        self._begin = 0
        self._hash = xxhash.xxh3_64()
        self.stream = pa.PythonFile(self, mode="w")
        self.closed = False

    def start(self) -> int:
        self._hash.reset()
        self._begin = self.position
        return self._begin

    def finish(self) -> tuple[int, int]:
        return self.position - self._begin, self._hash.intdigest()

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._hash.update(view)
        self._sink.write(data)
        self.position += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self.closed = True


def inline(batches: Iterable[pa.RecordBatch]) -> tuple[bytes, tuple[Chunk, ...]]:
    """Encode batches as bytes for the catalog; return the position of each as a chunk."""
    encoded = [(batch.num_rows, batch.serialize()) for batch in batches]
    chunks, offset = [], 0
    for rows, data in encoded:
        chunks.append(Chunk(rows, offset, data.size, xxhash.xxh3_64_intdigest(data)))
        offset += data.size
    return b"".join([data for _, data in encoded]), tuple(chunks)


def decode(data: pa.Buffer, chunk: Chunk, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """
    Verify the checksum of *data* and return its record batch.

    Raises `DamagedSegment`, which names the segment, when a byte differs or is missing.
    """
    if data.size != chunk.length:
        raise DamagedSegment(
            f"segment {name} is torn: {data.size} of {chunk.length} bytes at {chunk.offset}; "
            "restore the file, then put its messages back with `ignis repair`"
        )
    if xxhash.xxh3_64_intdigest(data) != chunk.checksum:
        raise DamagedSegment(
            f"segment {name} is altered: the checksum of the {chunk.length} bytes at "
            f"{chunk.offset} is wrong; restore the file, then put its messages back with "
            "`ignis repair`"
        )
    return pa.ipc.read_record_batch(pa.ipc.read_message(data), schema)


def pack_chunks(chunks: Iterable[Chunk]) -> bytes:
    """Return chunks as bytes for the catalog."""
    return b"".join([_CHUNK.pack(*chunk) for chunk in chunks])


def unpack_chunks(data: bytes) -> tuple[Chunk, ...]:
    """Read chunks that `pack_chunks` wrote."""
    return tuple(Chunk(*values) for values in _CHUNK.iter_unpack(data))
