"""Parse columns in Spark SQL, ``order_id LONG NOT NULL, customer STRING``, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from queue_core.errors import BadOption
from queue_core.values.schema import TIMESTAMP


def columns(text: str) -> pa.Schema:
    """Return the schema that a list of columns in Spark SQL describes; raises `BadOption`."""
    return pa.schema([_field(column) for column in _definitions(text)])


def _field(column: exp.Expression) -> pa.Field:
    """Return a column, or a field of a struct."""
    if not isinstance(column, exp.ColumnDef) or column.kind is None:
        raise BadOption(f"columns: {column.sql('spark')!r} has no type; write `name TYPE`")
    marks = [each.args.get("kind") for each in column.constraints]
    if not all(isinstance(mark, _NULLS | exp.CommentColumnConstraint) for mark in marks):
        raise BadOption(f"columns: {column.sql('spark')!r}: leave out all but NOT NULL")
    required = any(isinstance(m, _NULLS) and not m.args.get("allow_null") for m in marks)
    try:
        return pa.field(column.name, _arrow(column.kind), not required)
    except (IndexError, TypeError, ValueError) as error:
        raise BadOption(f"columns: {column.sql('spark')!r} cannot be understood") from error


def _definitions(text: str) -> list[exp.Expression]:
    try:
        statement = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect="spark")
    except SqlglotError:
        statement = None
    table = statement.this if isinstance(statement, exp.Create) else None
    if not isinstance(table, exp.Schema) or not table.expressions:
        raise BadOption(f"columns: {text!r} is not a list such as `id LONG NOT NULL, name STRING`")
    return list(table.expressions)


def _arrow(kind: exp.DataType) -> pa.DataType:
    if kind.this in _SIMPLE:
        return _SIMPLE[kind.this]
    if kind.this in _NESTED:
        return _NESTED[kind.this](kind)
    raise BadOption(f"columns: type {kind.sql('spark')} is not supported; use one of Spark's types")


_NULLS = exp.NotNullColumnConstraint
_T = exp.DataType.Type
_SIMPLE = {
    _T.TINYINT: pa.int8(),
    _T.SMALLINT: pa.int16(),
    _T.INT: pa.int32(),
    _T.BIGINT: pa.int64(),
    _T.FLOAT: pa.float32(),
    _T.DOUBLE: pa.float64(),
    _T.BOOLEAN: pa.bool_(),
    _T.TEXT: pa.string(),
    _T.VARCHAR: pa.string(),
    _T.CHAR: pa.string(),
    _T.BINARY: pa.binary(),
    _T.DATE: pa.date32(),
    _T.TIMESTAMPTZ: TIMESTAMP,
    _T.TIMESTAMPNTZ: pa.timestamp("us"),
}
_NESTED: dict[Any, Callable[[exp.DataType], pa.DataType]] = {
    _T.ARRAY: lambda kind: pa.list_(_arrow(kind.expressions[0])),
    _T.MAP: lambda kind: pa.map_(*(_arrow(each) for each in kind.expressions)),
    _T.STRUCT: lambda kind: pa.struct([_field(each) for each in kind.expressions]),
    # Spark's defaults: 10 digits, none after the decimal point.
    _T.DECIMAL: lambda kind: pa.decimal128(
        *([int(each.name) for each in kind.expressions] or [10])
    ),
}
