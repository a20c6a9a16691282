"""Map message ids to the rows that hold the messages after a compaction.

Users hold message ids, and slices name rows of segments. An id names the row of its message until
compaction moves the message to another segment. The new segment then has a row here, with the ids
of its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Row, bindparam, insert, select

from queue_core.catalog import dialect, seals
from queue_core.catalog.damage import decoding
from queue_core.catalog.tables import id_map
from queue_core.values.ids import IdSet, bounds_of, first_id
from queue_core.values.ipc import pack, unpack
from queue_core.values.model import ROW_BITS
from queue_core.values.plan import Taken
from queue_core.values.rows import Numbers

#: Runs of consecutive ids in consecutive rows. Ids and rows are stored as steps from run to run,
#: which are mostly equal and compress well.
_RUNS = pa.schema(
    [
        pa.field("first_id", pa.int64()),
        pa.field("count", pa.int64()),
        pa.field("first_row", pa.int64()),
    ]
)

#: The segments whose ids meet a range. If a message was moved more than once, the newest segment
#: is applied last.
_MEETING = (
    select(id_map)
    .where(
        dialect.one_of_given(id_map.c.queue_id, "these"),
        id_map.c.last_id >= bindparam("first"),
        id_map.c.first_id <= bindparam("last"),
    )
    .order_by(id_map.c.segment_id)
)
_THESE = dialect.one_of_given(id_map.c.segment_id, "these")
_OF_SEGMENTS = select(id_map).where(_THESE).order_by(id_map.c.segment_id)
_COMPACTED = select(id_map.c.segment_id).where(_THESE)


def record(
    connection: Connection, queue_id: int, segment_id: int, ids: Numbers, rows: Numbers
) -> None:
    """Record which row of a new segment holds each message."""
    order = np.argsort(ids)
    ids, rows = ids[order], rows[order]
    breaks = np.flatnonzero((np.diff(ids) != 1) | (np.diff(rows) != 1)) + 1
    starts = np.concatenate([[0], breaks])
    counts = np.diff(np.append(starts, len(ids)))
    steps = [np.diff(values[starts], prepend=0) for values in (ids, rows)]
    runs = pa.table([steps[0], counts, steps[1]], schema=_RUNS)
    row = {"segment_id": segment_id, "queue_id": queue_id, "arrow": pack(runs, "zstd")}
    row |= {"first_id": int(ids[0]), "last_id": int(ids[-1])}
    connection.execute(insert(id_map), row)


def copy(connection: Connection, queue_id: int, segment_ids: Collection[int]) -> None:
    """Let a subscription have the maps of segments that the compaction of a log has written."""
    given = seals.gain(id_map, {"queue_id": queue_id}) | {"reader": queue_id, "these": segment_ids}
    connection.execute(_copying(dialect.of(connection)), given)


@lru_cache(maxsize=4)
def _copying(database: dialect.Dialect) -> Any:
    columns: dict[str, ColumnElement[Any]] = {column.name: column for column in id_map.c}
    columns |= {
        "queue_id": bindparam("reader", type_=id_map.c.queue_id.type),
        "seal": seals.resealing(id_map, ["queue_id"]),
    }
    found = select(*columns.values()).where(_THESE, id_map.c.queue_id < 0)
    return database.insert_new(id_map).from_select(list(columns), found).on_conflict_do_nothing()


def compacted(connection: Connection, segment_ids: Collection[int]) -> set[int]:
    """Return those of some segments that compaction has written: their messages differ in age."""
    given = {"these": segment_ids}
    return {row.segment_id for row in connection.execute(_COMPACTED, given)}


def located(connection: Connection, queue_ids: Collection[int], ids: IdSet) -> IdSet:
    """Return the rows that hold the messages now, as ids."""
    if not len(ids):
        return ids
    met = _met(connection, queue_ids, *bounds_of(ids))
    return IdSet.of(_moved(ids.numbers(), met)) if met else ids


def physical(connection: Connection, queue_ids: Collection[int], ids: Numbers) -> Numbers:
    """Return the row that holds each message now, as an id; *ids* itself if none was moved."""
    if not len(ids):
        return ids
    met = _met(connection, queue_ids, int(ids.min()), int(ids.max()))
    return _moved(ids, met) if met else ids


def _met(
    connection: Connection, queue_ids: Collection[int], first: int, last: int
) -> Sequence[Row[Any]]:
    """Return the compactions that have moved messages with ids between two."""
    given = {"these": queue_ids, "first": first, "last": last}
    return connection.execute(_MEETING, given).all()


def _moved(ids: Numbers, met: Sequence[Row[Any]]) -> Numbers:
    found = ids.copy()
    for row in met:
        firsts, counts, rows = _runs_of(row)
        run = np.searchsorted(firsts, ids, side="right") - 1
        offsets = ids - firsts[run]
        # An id below the first run gets the last run, and a negative offset.
        inside = (offsets >= 0) & (offsets < counts[run])
        found[inside] = first_id(row.segment_id) + (rows[run] + offsets)[inside]
    return found


def logical(connection: Connection, ids: Numbers) -> Numbers:
    """Return the message id of each row of a segment, given as an id."""
    segments = ids >> ROW_BITS
    given = {"these": np.unique(segments).tolist()}
    found = ids
    # The rows of one segment, for different queues, all say the same of a row that is in them.
    for _, row in {row.segment_id: row for row in connection.execute(_OF_SEGMENTS, given)}.items():
        firsts, _, rows = _runs_of(row)
        order = np.argsort(rows)
        of_segment = segments == row.segment_id
        numbers = ids[of_segment] - first_id(row.segment_id)
        run = order[np.searchsorted(rows[order], numbers, side="right") - 1]
        found = found.copy() if found is ids else found
        found[of_segment] = firsts[run] + numbers - rows[run]
    return found


def ids_of(connection: Connection, taken: Sequence[Taken]) -> Numbers:
    """Return the ids of the messages in some rows of slices, in their order."""
    return logical(connection, rows_of(taken))


def rows_of(taken: Sequence[Taken]) -> Numbers:
    """Return some rows of slices as ids, before any compaction is undone."""
    parts = [rows.numbers().astype(np.int64) + first_id(piece.segment_id) for piece, rows in taken]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _runs_of(row: Row[Any]) -> tuple[Numbers, Numbers, Numbers]:
    with decoding(id_map, f"segment_id {row.segment_id}"):
        return _runs(row.arrow)


# Messages that are settled one after the other were often compacted together.
@lru_cache(maxsize=128)
def _runs(data: bytes) -> tuple[Numbers, Numbers, Numbers]:
    """Return the first id, the count and the first row of each run."""
    runs = unpack(data)
    steps, counts, rows = (column.to_numpy() for column in runs.columns)
    return np.cumsum(steps), counts, np.cumsum(rows)
