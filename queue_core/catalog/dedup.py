"""Keys of recently loaded messages, by which duplicates are recognised.

Each load adds one row with an Arrow table of its keys. Many small rows are merged into one. A load
that adds keys locks the queue's row, so that only one load adds keys at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from queue_core.catalog import dialect, seals
from queue_core.catalog.damage import decoding
from queue_core.catalog.tables import dedup
from queue_core.segments.ipc import pack, unpack

#: Rows with fewer keys than the first number are merged when there are as many as the second.
_SMALL_KEYS = 1 << 14
_SMALL_ROWS = 32

#: When a key was loaded: the column after those of the key.
_AT = pa.field("_loaded_at", pa.int64(), nullable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The known keys of a queue, up to a row of the table."""

    keys: pa.Table
    last: int


def last_row(connection: Connection, queue_id: int) -> int:
    """Return the newest row of a queue; it changes when keys are added."""
    return int(connection.scalar(select(func.max(dedup.c.id)).where(_of(queue_id))) or 0)


def known(connection: Connection, queue_id: int, keys: pa.Schema, window: float) -> Known:
    """Return the keys that were loaded within the last *window* seconds."""
    since = dialect.read_clock(connection) - int(window * 1e6)
    rows = connection.execute(
        select(dedup.c.id, dedup.c.arrow)
        .where(_of(queue_id), dedup.c.loaded_at > since)
        .order_by(dedup.c.id)
    ).all()
    stored = pa.schema([*keys, _AT])
    # Rows from before a change of the setting `dedup` do not count.
    tables = [_keys(row.id, row.arrow) for row in rows]
    alike = [table for table in tables if table.schema == stored]
    there = pa.concat_tables([stored.empty_table(), *alike])
    recent = there.filter(pc.greater(there.column(_AT.name), since))
    return Known(keys=recent.select(keys.names), last=last_row(connection, queue_id))


def add(connection: Connection, queue_id: int, keys: pa.Table, window: float) -> None:
    """Record the keys of messages that are loaded now; they are known for *window* seconds."""
    if not keys.num_rows:
        return
    now = dialect.read_clock(connection)
    table = keys.append_column(_AT, pa.repeat(pa.scalar(now), keys.num_rows))
    small = connection.execute(
        select(dedup.c.id, dedup.c.known_until, dedup.c.arrow).where(
            _of(queue_id), dedup.c.count < _SMALL_KEYS
        )
    ).all()
    until = now + int(window * 1e6)
    if len(small) >= _SMALL_ROWS:
        others = [_keys(row.id, row.arrow) for row in small]
        until = max(until, *(row.known_until for row in small))
        table = pa.concat_tables([*(t for t in others if t.schema == table.schema), table])
        put_together = dialect.of(connection).one_of(dedup.c.id, [row.id for row in small])
        connection.execute(delete(dedup).where(put_together))
    connection.execute(
        insert(dedup).values(
            seals.sealed(
                dedup,
                {
                    "queue_id": queue_id,
                    "loaded_at": now,
                    "known_until": until,
                    "count": table.num_rows,
                    "arrow": pack(table, "zstd"),
                },
            )
        )
    )


def forget(connection: Connection) -> None:
    """Remove the keys of all queues whose window is over."""
    connection.execute(delete(dedup).where(dedup.c.known_until <= dialect.read_clock(connection)))


def _keys(row_id: int, arrow: bytes) -> pa.Table:
    with decoding(dedup, f"id {row_id}"):
        return unpack(arrow)


def _of(queue_id: int) -> ColumnElement[bool]:
    return dedup.c.queue_id == queue_id
