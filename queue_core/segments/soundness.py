"""Whether the bytes of a segment are as they were written."""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

from queue_core.errors import DamagedSegment
from queue_core.segments.reader import chunk_reader
from queue_core.segments.storage import Storage
from queue_core.values.model import INLINE, Chunk


def find_fault(
    storage: Storage, id: int, location: str | None, data: bytes | None, chunks: Iterable[Chunk]
) -> str | None:
    """
    Read a whole segment, and return what is wrong with it; None if nothing is.

    *data*: the bytes of a segment that is in the catalog, and has no *location*. Raises
    `StorageUnavailable`, because an outage is not damage.
    """
    name = location or f"{INLINE}{id}"
    try:
        with chunk_reader(storage, name, None if location else data or b"") as read:
            for chunk in chunks:
                found = memoryview(read(chunk))
                if len(found) != chunk.length:
                    return f"{name} ends before its chunk at {chunk.offset}"
                if xxhash.xxh3_64_intdigest(found) != chunk.checksum:
                    return f"{name} is altered: the chunk at {chunk.offset} has another checksum"
    except DamagedSegment:
        return f"{name} is missing"
    return None
