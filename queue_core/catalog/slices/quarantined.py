"""Quarantined messages: which segments they are in, and what is wrong with these."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import xxhash
from sqlalchemy import Connection, func, select

from queue_core.catalog import dialect
from queue_core.catalog.queues import SHOWN
from queue_core.catalog.slices.conditions import DAMAGED, in_magazines
from queue_core.catalog.slices.segments import sources
from queue_core.catalog.tables import queues, segments, slices
from queue_core.errors import DamagedCatalog, DamagedSegment
from queue_core.segments.reader import chunk_reader
from queue_core.segments.storage import Storage
from queue_core.values.model import INLINE, Chunk, Magazine


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The quarantined messages of one segment."""

    queue_id: int
    queue: str
    segment_id: int
    #: The file of the segment, or a name of one that is in the catalog.
    name: str
    messages: int


def find(connection: Connection, queue_ids: Collection[int] | None = None) -> list[Quarantined]:
    """
    Return the segments with quarantined messages, of some queues or of all that are shown.

    Those of a snapshot are repaired with its subscription.
    """
    query = (
        select(
            slices.c.queue_id,
            queues.c.name,
            slices.c.segment_id,
            segments.c.file,
            func.sum(slices.c.count),
        )
        .join(queues, queues.c.id == slices.c.queue_id)
        .outerjoin(segments, segments.c.id == slices.c.segment_id)
        .where(*DAMAGED, *in_magazines([*Magazine]))
        .group_by(slices.c.queue_id, queues.c.name, slices.c.segment_id, segments.c.file)
        .order_by(slices.c.queue_id, slices.c.segment_id)
    )
    here = SHOWN if queue_ids is None else dialect.one_of(slices.c.queue_id, queue_ids)
    return [
        Quarantined(queue_id, queue, segment_id, location or f"{INLINE}{segment_id}", int(messages))
        for queue_id, queue, segment_id, location, messages in connection.execute(query.where(here))
    ]


def fault_of(connection: Connection, storage: Storage, segment_id: int) -> str | None:
    """Read a segment, and return what is wrong with it; raises `StorageUnavailable`."""
    try:
        segment = sources(connection, [segment_id])[segment_id]
    except DamagedCatalog as error:
        return str(error)
    chunks = [chunk for _, chunk in segment.chunks]
    return find_fault(storage, segment_id, segment.location, segment.data, chunks)


def remedy(one: Quarantined) -> str:
    """Return what brings the messages back."""
    if one.name.startswith(INLINE):
        return "its bytes are in the catalog, and come back only with a backup of the catalog"
    return (
        "copy the file from a backup, where it has the same path, then run "
        f"`ignis repair {one.queue}`"
    )


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
