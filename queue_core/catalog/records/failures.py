"""Why messages were sidelined: one row per settlement, with an Arrow table of its messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import BigInteger, Connection, Row, delete, func, insert, select

from queue_core.catalog import dialect
from queue_core.catalog.damage import decoding
from queue_core.catalog.record_tables import failures, tallies
from queue_core.catalog.slices import id_map
from queue_core.catalog.slices.slices import first_loaded
from queue_core.catalog.tables import queues, shards, slices
from queue_core.values.failure_kinds import FAILURE_LOG, REJECTED
from queue_core.values.ipc import pack, unpack
from queue_core.values.model import Slice
from queue_core.values.rows import Numbers, Rows
from queue_core.values.schema import TIMESTAMP

#: Rows of slices that were sidelined, as the slices were before.
Moved: TypeAlias = Sequence[tuple[Slice, Rows]]

#: How failures are stored. Ids are stored as differences, which are small and mostly equal; each
#: text is stored once.
_WORDS = pa.dictionary(pa.int32(), pa.string())
_KEPT = pa.schema(
    [
        pa.field("message_id", pa.int64()),
        pa.field("kind", _WORDS),
        pa.field("reason", _WORDS),
        pa.field("attempt", pa.int32()),
    ]
)


#: In the tallies: messages that failed, by the kind of the failure.
FAILURES = "failures"
_INSERT = insert(failures).inline()


def record_same(
    connection: Connection, queue_id: int, moved: Moved, kind: str, reason: str | None
) -> None:
    """Store that messages that nobody held have failed, for one reason."""
    ids, attempts = _attempts(moved)
    packed = pack_same(id_map.logical(connection, ids), attempts, kind, reason)
    store(connection, queue_id, None, packed, _shard_of(moved), {kind: len(ids)})


def record_each(
    connection: Connection,
    queue_id: int,
    consumer_name: str | None,
    moved: Moved,
    reasons: pa.Table,
    at: int | None,
    *,
    compacted: bool,
) -> None:
    """
    Store why messages of *consumer_name* failed, by their `REASONS`; without one: rejected.

    *at*: when. Without *compacted*, no compaction has made one of their segments.
    """
    rows, attempts = _attempts(moved)
    ids = id_map.logical(connection, rows) if compacted else rows
    words = _words(len(ids), REJECTED, None)
    if reasons.num_rows:
        # As one chunk: each chunk would store the texts again.
        found = kinds_and_reasons(pa.array(rows), reasons)
        words = [column.combine_chunks().dictionary_encode() for column in found]
    counted = words[0].value_counts()
    kinds = dict(zip(*(counted.field(n).to_pylist() for n in ("values", "counts")), strict=True))
    columns = [*words, pa.array(attempts)]
    packed = _packed(*_sorted(ids, columns))
    store(connection, queue_id, consumer_name, packed, _shard_of(moved), kinds, at)


def kinds_and_reasons(ids: Any, reasons: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return why messages with `REASONS` failed; without one: rejected, for no reason."""
    # Not at the top: a query waits for imports, and few messages fail.
    import pyarrow.compute as pc

    place = pc.index_in(ids, value_set=reasons.column("message_id").combine_chunks())
    kinds, texts = (reasons.column(name).take(place) for name in ("kind", "reason"))
    return kinds.fill_null(REJECTED), texts


def _shard_of(moved: Moved) -> int:
    """Return a shard of some messages, the same for those of the same shards."""
    return min(piece.shard for piece, _ in moved)


def pack_same(
    ids: Numbers, attempts: npt.NDArray[np.int32], kind: str, reason: str | None
) -> bytes:
    """
    Pack failures of messages with these ids for one reason.

    *attempts*: how often each had failed before. A caller that knows them before its transaction
    packs them then.
    """
    ids, (attempts,) = _sorted(ids, [attempts])
    return _packed_same(ids.tobytes(), attempts.tobytes(), kind, reason)


def read(connection: Connection, queue_ids: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
    """
    Yield the failures of each of some queues that has any, in the order of *queue_ids*.

    The oldest comes first, with the columns of `FAILURE_LOG`. One statement reads those of all
    queues.
    """
    rows = connection.execute(
        select(failures)
        .where(dialect.one_of(failures.c.queue_id, queue_ids))
        .order_by(failures.c.queue_id, failures.c.failed_at, failures.c.id)
    )
    found: dict[int, list[pa.Table]] = defaultdict(list)
    for row in rows:
        with decoding(failures, f"id {row.id}"):
            found[row.queue_id].append(_unpacked(row))
    for queue_id in queue_ids:
        if queue_id in found:
            yield queue_id, pa.concat_tables(found[queue_id])


def of_queue(connection: Connection, queue_id: int) -> pa.Table:
    """Return the failures of one queue, oldest first."""
    return next((found for _, found in read(connection, [queue_id])), FAILURE_LOG.empty_table())


def forgettable(connection: Connection, before: int) -> dict[int, int]:
    """
    Return, for each queue with failures older than a time, until when its failures can be removed.

    If a queue still has messages that were loaded before a failure, the failure stays, because it
    may belong to one of them. A reading transaction is enough: no message gets older.
    """
    old = (
        select(failures.c.queue_id, func.min(failures.c.failed_at).label("failed_at"))
        .where(failures.c.failed_at < before)
        .group_by(failures.c.queue_id)
    )
    failed = {row.queue_id: row.failed_at for row in connection.execute(old)}
    if not failed:
        return {}
    # Often an older message waits at the beginning of a shard: then it needs no look at the others.
    here = dialect.one_of(shards.c.queue_id, failed)
    rows = connection.execute(
        select(shards.c.queue_id, shards.c.magazine, shards.c.shard).where(here)
    )
    keys = [(row.queue_id, row.magazine, row.shard) for row in rows]
    first = first_loaded(connection, keys)
    queue_ids = [id for id, time in failed.items() if time < first.get(id, before)]
    if not queue_ids:
        return {}
    oldest = (
        select(slices.c.queue_id, func.min(slices.c.loaded_at).label("loaded_at"))
        .where(dialect.one_of(slices.c.queue_id, queue_ids))
        .group_by(slices.c.queue_id)
    )
    until = dict.fromkeys(queue_ids, before)
    until |= {row.queue_id: min(row.loaded_at, before) for row in connection.execute(oldest)}
    return until


def forget(connection: Connection, until: Mapping[int, int]) -> None:
    """Remove failures of some queues, each older than a time of `forgettable`."""
    for queue_id, time in until.items():
        here = failures.c.queue_id == queue_id
        connection.execute(delete(failures).where(here, failures.c.failed_at < time))


# Cached for a transaction that is tried again, or for which they were packed before.
@lru_cache(maxsize=1)
def _packed_same(ids: bytes, attempts: bytes, kind: str, reason: str | None) -> bytes:
    numbers = np.frombuffer(ids, np.int64)
    columns = [*_words(len(numbers), kind, reason), pa.array(np.frombuffer(attempts, np.int32))]
    return _packed(numbers, columns)


def _words(count: int, *texts: str | None) -> list[pa.DictionaryArray]:
    """Return columns with one text each, *count* times."""
    zeros = pa.array(np.zeros(count, np.int32))
    return [pa.DictionaryArray.from_arrays(zeros, pa.array([text], pa.string())) for text in texts]


def _sorted(ids: Numbers, columns: list[Any]) -> tuple[Numbers, list[Any]]:
    if not (ids[1:] < ids[:-1]).any():
        return ids, columns
    order = np.argsort(ids)
    return ids[order], [column.take(order) for column in columns]


def _packed(ids: Numbers, columns: Sequence[Any]) -> bytes:
    """Pack failures, in order of their ids, from the other columns of `_KEPT`."""
    steps = ids.copy()
    steps[1:] -= ids[:-1]
    kept = pa.table([steps, *columns], schema=_KEPT)
    # Packing holds up a transaction: LZ4 takes a fraction of the time of Zstandard.
    return pack(kept, "lz4")


def store(
    connection: Connection,
    queue_id: int,
    consumer_name: str | None,
    arrow: bytes,
    shard: int,
    kinds: Mapping[str, int],
    at: int | None = None,
) -> None:
    """
    Store packed failures of messages, which *consumer_name* held, and count them by *kinds*.

    *shard* is one of the messages' shards.
    """
    row = {
        "queue_id": queue_id,
        "failed_at": dialect.read_clock(connection) if at is None else at,
        "consumer": consumer_name,
        "arrow": arrow,
    }
    connection.execute(_INSERT, row)
    new = dialect.insert_new(connection, tallies)
    adding = new.on_conflict_do_update(
        index_elements=list(tallies.primary_key),
        set_={"total": tallies.c.total + new.excluded.total},
    )
    # Whoever waits for this row waits anyway, for the counters of the shard.
    tally = {"queue_id": queue_id, "name": FAILURES, "shard": shard}
    # Sorted, so that no two transactions wait for each other.
    tallied = [tally | {"label": kind, "total": count} for kind, count in sorted(kinds.items())]
    connection.execute(adding, tallied)


def _unpacked(row: Row[Any]) -> pa.Table:
    import pyarrow.compute as pc

    kept = unpack(row.arrow)
    steps, *others = kept.columns
    consumer = pa.repeat(pa.scalar(row.consumer, pa.string()), kept.num_rows)
    failed_at = pa.repeat(pa.scalar(row.failed_at, TIMESTAMP), kept.num_rows)
    columns = [pc.cumulative_sum(steps), *others, consumer, failed_at]
    return pa.table(columns, names=FAILURE_LOG.names).cast(FAILURE_LOG)


def _attempts(moved: Moved) -> tuple[Numbers, npt.NDArray[np.int32]]:
    """Return the ids of messages, and how often each had failed before."""
    attempts = np.array([piece.attempts for piece, _ in moved], np.int32)
    counts = [len(rows) for _, rows in moved]
    return id_map.rows_of(moved), np.repeat(attempts, counts)


def by_kind(connection: Connection) -> Sequence[Any]:
    """Return the failures of all queues by kind, each with the name of its `queue`."""
    total = func.sum(tallies.c.total).cast(BigInteger).label("total")
    query = select(queues.c.name.label("queue"), tallies.c.label, total).join(
        tallies, tallies.c.queue_id == queues.c.id
    )
    of_kind = query.where(tallies.c.name == FAILURES).group_by(queues.c.name, tallies.c.label)
    return connection.execute(of_kind.order_by(queues.c.name, tallies.c.label)).all()
