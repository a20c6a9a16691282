"""Rows of the catalog's tables as Arrow record batches, the same for every database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    insert,
    select,
)

from queue_core.catalog.damage import UNREADABLE, decoding
from queue_core.catalog.tables import metadata

#: Tables whose ids the database assigns.
NUMBERED = [table for table in metadata.sorted_tables if table.autoincrement_column is not None]
#: The most rows in memory at a time.
BATCH_ROWS = 1000


def schema_of(table: Table) -> pa.Schema:
    """Return the columns of a table as Arrow types."""
    return pa.schema([(column.name, _type_of(column.type)) for column in table.columns])


def read(connection: Connection, table: Table) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a table."""
    schema = schema_of(table)
    query = select(table).order_by(*table.primary_key.columns)
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


def write(connection: Connection, table: Table, batches: Iterable[pa.RecordBatch]) -> None:
    """Insert rows into a table."""
    for batch in batches:
        connection.execute(insert(table), batch.to_pylist())


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
