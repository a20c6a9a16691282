"""Whether the bytes of a segment are as they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import xxhash

from queue_core.errors import DamagedSegment
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
        with _reading(storage, location, data) as read:
            for chunk in chunks:
                found = memoryview(read(chunk))
                if len(found) != chunk.length:
                    return f"{name} ends before its chunk at {chunk.offset}"
                if xxhash.xxh3_64_intdigest(found) != chunk.checksum:
                    return f"{name} is altered: the chunk at {chunk.offset} has another checksum"
    except DamagedSegment:
        return f"{name} is missing"
    return None


@contextmanager
def _reading(
    storage: Storage, location: str | None, data: bytes | None
) -> Iterator[Callable[[Chunk], Any]]:
    if location is None:
        whole = memoryview(data or b"")
        yield lambda chunk: whole[chunk.offset : chunk.offset + chunk.length]
        return
    with storage.opened(location) as handle:
        yield lambda chunk: storage.read(handle, chunk.offset, chunk.length, location)
