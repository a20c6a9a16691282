"""All rows of the catalog's tables, or of a queue; as Arrow batches, the same for all databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    Boolean,
    Connection,
    Integer,
    LargeBinary,
    Row,
    String,
    Table,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from queue_core.catalog import dialect, seals
from queue_core.catalog.damage import UNREADABLE, decoding
from queue_core.catalog.holder_tables import consumers, interests
from queue_core.catalog.record_tables import samples
from queue_core.catalog.slices import unread
from queue_core.catalog.tables import (
    NUMBERED,
    counters,
    dedup,
    flows,
    metadata,
    queues,
    segments,
    shard_locks,
    shards,
    slices,
    token_buckets,
)

#: The names of all tables, in the order in which they are read and written.
NAMES = tuple(table.name for table in metadata.sorted_tables)
#: What goes with a queue that is dropped, in the order in which all verbs lock it, after the
#: buckets of its limits. Its segments are released with the messages, and side tasks remove keys
#: and samples.
MESSAGES = (shard_locks, slices)
_LOCKED = (queues, interests, shards, flows, counters)
_LEFT = (token_buckets, *MESSAGES, *_LOCKED, segments, dedup, samples)
#: The queue itself, and tables whose rows no other verb locks.
REST = (*_LOCKED, *(t for t in metadata.sorted_tables if "queue_id" in t.c and t not in _LEFT))
#: The most rows in memory at a time.
BATCH_ROWS = 1000


def schema_of(name: str) -> pa.Schema:
    """Return the columns of a table as Arrow types."""
    columns = metadata.tables[name].columns
    return pa.schema([(column.name, _type_of(column.type)) for column in columns])


def read(connection: Connection, name: str, *, with_logs: bool = True) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a table, or those without what only logs keep: `unread.ROWS`."""
    table, schema = metadata.tables[name], schema_of(name)
    chosen = select(table) if with_logs else unread.ROWS.get(name, select(table))
    query = chosen.order_by(*table.primary_key.columns)
    found = connection.execute(query.execution_options(yield_per=BATCH_ROWS))
    for rows in found.partitions():
        yield _batch(table, rows, schema)


def _batch(table: Table, rows: Sequence[Row[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a table; raises `DamagedCatalog` for a value of another kind."""
    try:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
    except UNREADABLE:
        for row in rows:
            keys = (key.name for key in table.primary_key)
            with decoding(table, " and ".join(f"{key} {getattr(row, key)}" for key in keys)):
                for value, each in zip(row, schema, strict=True):
                    pa.array([value], each.type)
        raise
    return pa.record_batch(arrays, schema=schema)


def are_used(connection: Connection) -> bool:
    """Return whether the catalog has queues or consumers."""
    return any(
        connection.scalar(select(table.c.id).limit(1)) is not None for table in (queues, consumers)
    )


def lock(connection: Connection) -> None:
    """Wait for all writing transactions, and keep new ones waiting."""
    dialect.of(connection).lock_tables(connection, metadata.sorted_tables)


def replace(connection: Connection, name: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Replace all rows of a table."""
    table = metadata.tables[name]
    connection.execute(delete(table))
    for batch in batches:
        connection.execute(insert(table), batch.to_pylist())


def remove(connection: Connection, tables: Iterable[Table], queue_id: int) -> None:
    """Remove the rows of a queue from some tables."""
    for table in tables:
        column = table.c.id if table is queues else table.c.queue_id
        connection.execute(delete(table).where(column == queue_id))


def last_ids(connection: Connection) -> dict[str, int]:
    """Return the highest id of each table whose ids the database assigns."""
    found = {}
    for table in NUMBERED:
        highest = connection.scalar(select(func.max(table.c.id))) or 0
        found[table.name] = max(highest, dialect.of(connection).last_id(connection, table))
    return found


def skip_ids(connection: Connection, last: Mapping[str, int], jump: int) -> None:
    """
    Let the next ids begin *jump* after the *last* ones, and raise all epochs by as much.

    Tickets of consumers that are not queries are raised too: a process that was not stopped must
    not settle what the next life of its consumer holds. Queries compare theirs with checkpoints.
    """
    for table in NUMBERED:
        dialect.of(connection).raise_ids(connection, table, last[table.name] + jump)
    number = consumers.c.last_ticket
    last_ticket = case((consumers.c.ack.is_(None), number + jump), else_=number)
    raised = seals.changing(consumers, epoch=consumers.c.epoch + jump, last_ticket=last_ticket)
    connection.execute(update(consumers).values(raised))


def _type_of(kind: Any) -> pa.DataType:
    match kind:
        case Boolean():
            return pa.bool_()
        case Integer():
            return pa.int64()
        case String():
            return pa.large_string()
        case LargeBinary():
            return pa.large_binary()
    raise NotImplementedError(f"a column of type {kind}")
