"""Load: publish messages at the tail of main.

Changes: adds slices at the shards' load pointers, in one transaction, for segments that are durable
already. Guard: a load pointer is advanced under its row's lock, so places are given out in order of
commits; the location of a file is a primary key that its removal takes too. Crash before the
commit: files that no slice names, for vacuum. Crash after it: the messages are loaded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from queue_core import faults
from queue_core.catalog import Catalog, dialect, lines, segments, slices, wake
from queue_core.catalog.tables import publications
from queue_core.errors import PublicationRefused, QueueFull
from queue_core.ids import first_id
from queue_core.model import Magazine, QueueInfo, Run, Staged, State
from queue_core.storage import Storage
from queue_core.verbs.admit import admit
from queue_core.verbs.rendezvous import meet
from queue_core.verbs.ring import drop_oldest
from queue_core.verbs.room import WhenFull, find_room

Result = TypeVar("Result")

_AS_SET = WhenFull()


def publish(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    when_full: WhenFull = _AS_SET,
) -> list[int]:
    """
    Load staged segments, each run of which has a shard; return the id of the first message of each.

    In a bounded queue as `admit` says. Raises `PublicationRefused` when a file was cleaned up
    meanwhile, `QueueDeactivated` and `QueueFull`; then nothing is loaded.
    """

    def attempt(waiter: int | None) -> list[int]:
        return _commit(
            catalog, lambda c: load(c, storage, queue, staged, waiter, when_full.overflow)
        )

    if queue.settings.is_rendezvous:
        return meet(catalog, queue, staged, attempt, when_full.timeout)
    try:
        return admit(catalog, storage.uri, queue, staged, attempt, when_full)
    except QueueFull:
        # Nothing was committed, for certain.
        for segment in staged:
            if segment.location is not None:
                storage.remove(segment.location)
        raise


def publish_once(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    query_id: str,
    batch_id: int,
    when_full: WhenFull = _AS_SET,
) -> bool:
    """
    Load the batch of a streaming query, unless it was loaded before; tell whether it was now.

    A batch that is there already waits for no room, and leaves its staged files as garbage. Raises
    as `publish` does.
    """

    def work(connection: Connection, waiter: int | None) -> bool:
        fresh = is_new_batch(connection, queue.id, query_id, batch_id)
        if fresh:
            load(connection, storage, queue, staged, waiter, when_full.overflow)
        else:
            segments.discard_unpublished(connection, [s.location for s in staged if s.location])
        return fresh

    def attempt(waiter: int | None) -> bool:
        return _commit(catalog, lambda c: work(c, waiter))

    return admit(catalog, storage.uri, queue, staged, attempt, when_full)


def load(
    connection: Connection,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    waiter: int | None = None,
    overflow: str | None = None,
) -> list[int]:
    """
    Add the slices of staged segments, within a transaction.

    *waiter* and *overflow* are for `find_room`. Raises `NoRoom`.
    """
    excess = find_room(connection, queue, staged, waiter, overflow)
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
        count = sum(len(run) for run, _ in runs[shard])
        offsets, span = _offsets(runs[shard])
        place = (queue.id, Magazine.MAIN, shard)
        tail = slices.allocate(connection, place, span, count, new=True)
        slices.add(
            connection,
            [
                values | {"position": tail + offset}
                for (_, values), offset in zip(runs[shard], offsets, strict=True)
            ],
        )
    if excess is not None:
        drop_oldest(connection, queue, excess)
    if waiter is not None and not queue.settings.is_rendezvous:
        lines.leave(connection, waiter)
    wake.notify(connection, queue.name)
    return first_ids


def _commit(catalog: Catalog, work: Callable[[Connection], Result]) -> Result:
    """Load in one transaction."""

    def whole(connection: Connection) -> Result:
        result = work(connection)
        faults.point("load.before_commit")
        return result

    result = catalog.write(whole)
    faults.point("load.committed")
    return result


def claim(connection: Connection, storage: Storage, staged: Iterable[Staged]) -> None:
    """Make the files of staged segments safe from removal; raises `PublicationRefused`."""
    locations = [segment.location for segment in staged if segment.location is not None]
    segments.claim(connection, locations)
    # One that was removed and forgotten can be claimed.
    missing = storage.missing(locations)
    if missing:
        raise PublicationRefused(
            f"segment {min(missing)} was cleaned up before it was published; write the rows again"
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


def _offsets(runs: Sequence[tuple[Run, dict[str, Any]]]) -> tuple[list[int], int]:
    """Where runs of one shard stand, from its tail on, and how many places they take."""
    offsets: list[int] = []
    segment, begin, end, base, span = None, 0, 0, 0, 0
    for run, values in runs:
        if values["segment_id"] != segment or run.start >= end:
            segment, begin, end, base = values["segment_id"], run.start, 0, span
        # Rows of categories lie between each other, and their places do as well.
        offsets.append(base + run.start - begin)
        end = max(end, run.stop)
        span = base + end - begin
    return offsets, span


def _new_slice(
    queue: QueueInfo, segment_id: int, loaded_at: int, segment: Staged, run: Run
) -> dict[str, Any]:
    """A slice of the table, but for its position."""
    count = len(run)
    return {
        "queue_id": queue.id,
        "magazine": int(Magazine.MAIN),
        "shard": run.shard,
        "state": int(State.LOADED),
        "segment_id": segment_id,
        "row_start": run.start,
        "row_stop": run.stop,
        "bitmap": None if run.rows is None else run.rows.to_bytes(),
        "count": count,
        "bytes": segment.bytes * count // max(segment.rows, 1),
        "attempts": 0,
        "deliveries": 0,
        "loaded_at": loaded_at,
        "moved_at": loaded_at,
        "stats": run.stats,
    }
