"""Build read plans from slices. A machine without the catalog can read messages by a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.damage import damaged
from queue_core.catalog.slices.segments import sources
from queue_core.catalog.tables import segments
from queue_core.values.model import QueueInfo, ReadPlan, SegmentRef
from queue_core.values.plan import Taken, scan_tasks
from queue_core.values.schema import serialize


def build(
    connection: Connection,
    infos: Sequence[QueueInfo],
    taken: Iterable[Taken],
    storage: str,
    known: dict[int, SegmentRef] | None = None,
    fired_at: int | None = None,
) -> ReadPlan:
    """
    Return how to read rows of slices, in order of queues, shards and places.

    If messages of the first queue have newer columns than its *info*, they are read with these.
    *known* caches the segments of earlier plans of the same transaction. *fired_at*: when it fires
    the messages; None: when they were fired last.
    """
    by_queue: dict[int, list[Taken]] = defaultdict(list)
    for piece, rows in taken:
        by_queue[piece.queue_id].append((piece, rows))
    refs = {} if known is None else known
    missing = {s.segment_id for pairs in by_queue.values() for s, _ in pairs} - refs.keys()
    if missing:
        refs.update(sources(connection, missing))
    tasks = tuple(
        task for info in infos for task in scan_tasks(by_queue[info.id], refs, info.name, fired_at)
    )
    first = infos[0]
    schema, newest = serialize(first.schema), 0
    stored: dict[tuple[str, int], bytes] = {}
    for info in infos:
        # A segment of each version of the columns.
        written = {refs[s.segment_id].schema_version: s.segment_id for s, _ in by_queue[info.id]}
        if info.schema != first.schema:
            # Columns were added to one of them alone.
            stored[info.name, info.schema_version] = serialize(info.schema)
        if info is first:
            newest = max(written, default=0)
        if written.keys() - {info.schema_version}:
            known_schemas = queues.schemas_of(connection, info.root)
            stored |= {(info.name, version): data for version, data in known_schemas.items()}
            for version in sorted(written.keys() - {info.schema_version, *known_schemas}):
                where = f"id {written[version]}"
                raise damaged(segments, where, f"its queue has no schema {version}")
    if newest > first.schema_version:
        # Columns are only ever added, so no value of any message is left out.
        stored |= {(info.name, info.schema_version): serialize(info.schema) for info in infos}
        schema = stored[first.name, newest]
    return ReadPlan(storage=storage, schema=schema, schemas=stored, tasks=tasks)
