"""Load: publish messages at the tail of main.

Changes: adds slices at the shards' load pointers, in one transaction, for segments that are durable
already. Guard: a load pointer is advanced under its row's lock, so places are given out in order of
commits; the location of a file is a primary key that its removal takes too. Crash before the
commit: files that no slice names, for vacuum. Crash after it: the messages are loaded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from queue_core import faults
from queue_core.catalog import Catalog, dialect, segments, slices, wake
from queue_core.catalog.tables import publications
from queue_core.errors import PublicationRefused
from queue_core.ids import first_id
from queue_core.model import Magazine, QueueInfo, Run, Staged, State
from queue_core.storage import Storage


def publish(
    catalog: Catalog, storage: Storage, queue: QueueInfo, staged: Sequence[Staged]
) -> list[int]:
    """
    Load staged segments, each run of which has a shard; return the id of the first message of each.

    Raises `PublicationRefused` when a file was cleaned up meanwhile, and `QueueDeactivated`; then
    nothing is loaded.
    """

    def work(connection: Connection) -> list[int]:
        ids = load(connection, storage, queue, staged)
        faults.point("load.before_commit")
        return ids

    ids = catalog.write(work)
    faults.point("load.committed")
    return ids


def publish_once(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    query_id: str,
    batch_id: int,
) -> bool:
    """
    Load the batch of a streaming query, unless it was loaded before; tell whether it was now.

    A batch that is there already leaves its staged files as garbage.
    """

    def work(connection: Connection) -> bool:
        fresh = is_new_batch(connection, queue.id, query_id, batch_id)
        if fresh:
            load(connection, storage, queue, staged)
        else:
            segments.discard_unpublished(connection, [s.location for s in staged if s.location])
        faults.point("load.before_commit")
        return fresh

    fresh = catalog.write(work)
    faults.point("load.committed")
    return fresh


def load(
    connection: Connection,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
) -> list[int]:
    """Add the slices of staged segments, within a transaction."""
    claim(connection, storage, staged)
    first_ids = []
    runs: dict[int, list[tuple[Run, dict[str, Any]]]] = defaultdict(list)
    for segment in staged:
        segment_id, loaded_at = segments.publish(connection, queue.id, segment)
        first_ids.append(first_id(segment_id))
        for run in segment.runs:
            assert run.shard is not None, "the caller has seen to it"
            runs[run.shard].append((run, _new_slice(queue, segment_id, loaded_at, segment, run)))
    for shard in sorted(runs):
        count = sum(run.stop - run.start for run, _ in runs[shard])
        place = (queue.id, Magazine.MAIN, shard)
        position = slices.allocate(connection, place, count, count, new=True)
        new = []
        for run, values in runs[shard]:
            new.append(values | {"position": position})
            position += run.stop - run.start
        slices.add(connection, new)
    wake.notify(connection, queue.name)
    return first_ids


def claim(connection: Connection, storage: Storage, staged: Iterable[Staged]) -> None:
    """Make the files of staged segments safe from removal; raises `PublicationRefused`."""
    locations = [segment.location for segment in staged if segment.location is not None]
    segments.claim(connection, locations)
    for location in locations:
        # One that was removed and forgotten can be claimed.
        if not storage.exists(location):
            raise PublicationRefused(
                f"segment {location} was cleaned up before it was published; write the rows again"
            )


def is_new_batch(connection: Connection, queue_id: int, query_id: str, batch_id: int) -> bool:
    """Record that a query publishes a batch; False when it, or a later one, is there already."""
    statement = dialect.insert_new(connection, publications).values(
        queue_id=queue_id,
        query_id=query_id,
        batch_id=batch_id,
        published_at=dialect.now(),
    )
    recorded = connection.execute(
        statement.on_conflict_do_update(
            index_elements=[publications.c.queue_id, publications.c.query_id],
            set_={
                "batch_id": statement.excluded.batch_id,
                "published_at": statement.excluded.published_at,
            },
            where=publications.c.batch_id < statement.excluded.batch_id,
        ).returning(publications.c.batch_id)
    )
    return recorded.first() is not None


def _new_slice(
    queue: QueueInfo, segment_id: int, loaded_at: int, segment: Staged, run: Run
) -> dict[str, Any]:
    """A slice of the table, but for its position."""
    count = run.stop - run.start
    return {
        "queue_id": queue.id,
        "magazine": int(Magazine.MAIN),
        "shard": run.shard,
        "state": int(State.LOADED),
        "segment_id": segment_id,
        "row_start": run.start,
        "row_stop": run.stop,
        "count": count,
        "bytes": segment.bytes * count // max(segment.rows, 1),
        "attempts": 0,
        "deliveries": 0,
        "loaded_at": loaded_at,
        "moved_at": loaded_at,
        "stats": run.stats,
    }
