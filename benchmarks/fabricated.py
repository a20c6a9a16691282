"""Large stores in seconds: copies of rows of the catalog, as loads would have written them.

A queue of a million slices would take an hour to load. Here, one load makes one slice, and SQL
copies its rows. Most copies have no seals, and `ignis fsck` would report them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    String,
    Table,
    cast,
    func,
    insert,
    literal,
    select,
    text,
    true,
)

from queue_core import Queue, Store
from queue_core.catalog import seals, tables

#: Of small numbers, so that a segment of 10,000 messages is still part of the catalog.
SCHEMA = pa.schema([("number", pa.int32())])
SHARDS = 32

#: Copies the only slice of a queue, and its segment, so that they are *count* in all.
_SEGMENTS = """
    INSERT INTO segments (queue_id, schema_version, data, rows, bytes, chunks, loaded_at)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count - 1)
    SELECT queue_id, schema_version, data, rows, bytes, chunks, loaded_at
    FROM segments, n WHERE id = :segment
"""
_SLICES = """
    INSERT INTO slices (queue_id, magazine, shard, state, position, segment_id, row_start, row_stop,
        count, bytes, attempts, deliveries, loaded_at, moved_at)
    SELECT s.queue_id, s.magazine, g.id % :shards, s.state, (10 + g.id - :segment) * s.count, g.id,
        s.row_start, s.row_stop, s.count, s.bytes, 0, 0, s.loaded_at, s.moved_at
    FROM slices s, segments g WHERE s.segment_id = :segment AND g.id > :segment
"""
_COUNTS = """
    UPDATE shards SET seal = NULL, load_pointer = (10 + :count) * :each,
        loaded = (SELECT coalesce(sum(s.count), 0) FROM slices s
            WHERE s.queue_id = shards.queue_id AND s.magazine = shards.magazine
            AND s.shard = shards.shard)
    WHERE queue_id = (SELECT queue_id FROM segments WHERE id = :segment)
"""
#: The other tables that have rows for each queue.
_OF_QUEUE = (tables.schemas, tables.shards, tables.shard_locks, tables.counters)


def make(
    store: Store,
    name: str,
    slices: int,
    each: int = 1,
    *,
    shards: int = SHARDS,
    analyze: bool = True,
    **settings: object,
) -> Queue:
    """Return a queue with this many slices of *each* messages, by default of one."""
    # Messages with the same key are loaded into one shard, as one slice.
    queue = store.create_queue(name, SCHEMA, shards=shards, key="number", **settings)
    queue.load(pa.table({"number": pa.array([1] * each, pa.int32())}))
    found = store.view("slices", name)
    assert found.num_rows == 1, "the messages are one slice"
    segment = found["segment_id"][0].as_py()
    values = {"count": slices, "segment": segment, "shards": shards, "each": each}

    def work(connection: Connection) -> None:
        if slices > 1:
            connection.execute(text(_SEGMENTS), values)
            connection.execute(text(_SLICES), values)
            connection.execute(text(_COUNTS), values)
        if analyze:
            _analyze(connection)

    store.catalog.write(work)
    return queue


def multiply(store: Store, queue: Queue, count: int) -> None:
    """Copy a queue with all its slices, so that there are *count* queues like it."""
    store.catalog.write(lambda connection: _multiply(connection, queue.info.id, count - 1))


def _multiply(connection: Connection, queue_id: int, copies: int) -> None:
    if not copies:
        return
    queues, segments = tables.queues, tables.segments
    number = select(literal(1).label("number")).cte("numbers", recursive=True)
    number = number.union_all(select(number.c.number + 1).where(number.c.number < copies))
    # Ids of segments: after the last one, each copy as far apart from each other as the originals.
    least, most = connection.execute(
        select(func.min(segments.c.id), func.max(segments.c.id)).where(
            segments.c.queue_id == queue_id
        )
    ).one()
    last = connection.scalar(select(func.max(segments.c.id)))
    moved = last - least + 1 + (number.c.number - 1) * (most - least + 1)
    new_queue = connection.scalar(select(func.max(queues.c.id))) + number.c.number
    changed: dict[Table, dict[str, ColumnElement[Any]]] = {
        queues: {"id": new_queue, "name": queues.c.name + "-" + cast(number.c.number, String)},
        segments: {"id": segments.c.id + moved, "queue_id": new_queue},
        tables.slices: {"segment_id": tables.slices.c.segment_id + moved, "queue_id": new_queue},
        **{table: _of_queue(table, new_queue) for table in _OF_QUEUE},
    }
    for table, values in changed.items():
        _copy(connection, table, queue_id, number, values)
    if connection.dialect.name == "postgresql":
        for table in (queues, segments):
            run_on = f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id))"
            connection.execute(text(f"{run_on} FROM {table.name}"))
    _analyze(connection)


def _of_queue(table: Table, queue_id: ColumnElement[int]) -> dict[str, ColumnElement[Any]]:
    """Return what a row of another queue has, with its seal, since schemas are compared with it."""
    more = queue_id * seals.weight(table, "queue_id")
    return {"queue_id": queue_id, "seal": seals.resealing(table, ["queue_id"], more)}


def _copy(
    connection: Connection,
    table: Table,
    queue_id: int,
    number: CTE,
    changed: Mapping[str, ColumnElement[Any]],
) -> None:
    """Insert the rows of a queue once for each number, with these columns changed."""
    without = {"id", "seal"} - set(changed)
    columns = {name: changed.get(name, own) for name, own in table.c.items() if name not in without}
    of = table.c.id if table is tables.queues else table.c.queue_id
    rows = select(*columns.values()).select_from(table.join(number, true())).where(of == queue_id)
    connection.execute(insert(table).from_select([*columns], rows, include_defaults=False))


def _analyze(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("ANALYZE"))


def run(store: Store, statement: str) -> None:
    """Run a statement on the catalog."""
    store.catalog.write(lambda connection: connection.execute(text(statement)))
