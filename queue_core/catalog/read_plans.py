"""From slices to a `ReadPlan`: all that another machine needs to read their messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.segments import sources
from queue_core.model import QueueInfo, ReadPlan, SegmentRef, Slice
from queue_core.plan import scan_tasks
from queue_core.rows import Rows
from queue_core.schema import serialize


def build(
    connection: Connection,
    infos: Sequence[QueueInfo],
    held: Iterable[tuple[Slice, Rows]],
    storage: str,
    known: dict[int, SegmentRef] | None = None,
) -> ReadPlan:
    """
    How to read these rows of slices, in order of queues, shards and places.

    *known* are the sources of an earlier reading of the same transaction; it gets those that it
    lacks.
    """
    by_queue: dict[int, list[tuple[Slice, Rows]]] = {}
    for piece, rows in held:
        by_queue.setdefault(piece.queue_id, []).append((piece, rows))
    found = {} if known is None else known
    wanted = {s.segment_id for pairs in by_queue.values() for s, _ in pairs}
    if wanted - found.keys():
        found.update(sources(connection, wanted - found.keys()))
    read = tuple(
        piece for info in infos for piece in scan_tasks(by_queue.get(info.id, ()), found, info.name)
    )
    older = {
        (info.name, version): data
        for info in infos
        if any(
            found[s.segment_id].schema_version != info.schema_version
            for s, _ in by_queue.get(info.id, ())
        )
        for version, data in queues.schemas_of(connection, info.id).items()
    }
    return ReadPlan(storage=storage, schema=serialize(infos[0].schema), schemas=older, tasks=read)
