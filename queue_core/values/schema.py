"""Arrow schemas of queues: the columns, the rows that fit, and their evolution.

A load casts all that fits into the types of the queue (`arrow_types.py`). It rounds only fractions.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from queue_core.errors import SchemaMismatch
from queue_core.values.arrow_types import are_alike, canonical_field
from queue_core.values.names import check_columns, listed, nearest
from queue_core.values.valid_text import is_valid, parts_of, valid_table


class DataFrame(Protocol):
    """A table of any library that gives its data as Arrow: pandas, Polars, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


#: Rows to load: Arrow data, a data frame, or a list with one dict per message.
Loadable: TypeAlias = "pa.Table | pa.RecordBatch | DataFrame | Iterable[Mapping[str, Any]]"
#: What pandas calls the labels of its rows.
_ROW_LABELS = re.compile(r"__index_level_\d+__")

_t = pa.types

_log = logging.getLogger(__name__)

TIMESTAMP = pa.timestamp("us", tz="UTC")

#: The columns that describe a message. They follow the queue's own columns when messages are read.
#: `_attempt` counts failures, from 0. `_fired_at` is the time at which the message was last fired
#: or shovelled, and is null if it never was: a message that was fired and waits again, after a
#: reload or a failure, keeps its `_fired_at`.
METADATA = pa.schema(
    [
        #: Never changes, wherever the message is moved.
        pa.field("_message_id", pa.int64(), nullable=False),
        pa.field("_queue", pa.string(), nullable=False),
        pa.field("_shard", pa.int32(), nullable=False),
        #: How often the message has failed: 0 at first.
        pa.field("_attempt", pa.int32(), nullable=False),
        pa.field("_loaded_at", TIMESTAMP, nullable=False),
        #: When the message was last fired or shovelled; null if it never was.
        pa.field("_fired_at", TIMESTAMP),
    ]
)

#: How many messages were loaded into its shard before a message.
OFFSET = "_offset"
#: The columns that describe a message of a log, which knows no outcomes.
LOG_METADATA = pa.schema(
    [
        *(METADATA.field(name) for name in ("_message_id", "_queue", "_shard")),
        pa.field(OFFSET, pa.int64(), nullable=False),
        METADATA.field("_loaded_at"),
    ]
)

#: Optional columns that their names make special: the time at which a message expires, and the time
#: before which it is held.
EXPIRES_AT, HOLD_UNTIL = "_expires_at", "_hold_until"
#: Columns that only selectors see: seconds since a message was loaded, and the current time.
AGE, NOW = "_age", "_now"

#: Columns of a compacted segment after the queue's own: the identity of each row's message. They
#: are found by position, because a queue can have columns of these names too.
COMPACTED = pa.schema(
    [
        METADATA.field("_message_id"),
        METADATA.field("_loaded_at"),
        #: Number of the row. There can be gaps, so that every message keeps its place.
        pa.field("_row", pa.uint32(), nullable=False),
    ]
)


def canonical(schema: pa.Schema) -> pa.Schema:
    """
    Return a schema in the types that a queue stores.

    Raises `SchemaMismatch` for a type that Spark does not support, and `BadName` for a column name
    that is not allowed.
    """
    if not isinstance(schema, pa.Schema):
        raise SchemaMismatch(
            f"a queue's schema is a pyarrow.Schema, a dataclass or a pydantic model, not "
            f"{type(schema).__name__}"
        )
    if not len(schema):
        raise SchemaMismatch("a queue needs at least one column")
    check_columns(schema.names, reserved=[*METADATA.names, AGE, NOW])
    columns = pa.schema([canonical_field(field, field.name) for field in schema])
    for field in columns:
        if field.name in (EXPIRES_AT, HOLD_UNTIL) and not _t.is_timestamp(field.type):
            raise SchemaMismatch(f"column {field.name!r} must be a timestamp, not {field.type}")
    return columns


def serialize(schema: pa.Schema) -> bytes:
    """Return a schema as Arrow IPC bytes."""
    # Arrow's default memory pool takes some milliseconds to start, and a query would wait.
    return bytes(schema.serialize(pa.system_memory_pool()))


def deserialize(data: bytes) -> pa.Schema:
    """Return the schema that `serialize` wrote."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def output_schema(schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of the messages that are read from a queue with this schema."""
    whole = pa.schema([*schema, *METADATA])
    return whole if columns is None else pa.schema([whole.field(name) for name in columns])


def log_schema(schema: pa.Schema, queue: str) -> pa.Schema:
    """Return the schema of the messages that are read from the log of a queue."""
    if OFFSET in schema.names:
        raise SchemaMismatch(
            f"queue {queue!r} has a column {OFFSET!r} of its own; read its log with "
            "includeMetadata=false"
        )
    return pa.schema([*schema, *LOG_METADATA])


def conform(rows: Loadable, schema: pa.Schema, queue: str, *, mends: bool = False) -> pa.Table:
    """
    Return rows as a table of exactly *schema*, without metadata columns.

    Missing nullable columns become null. Raises `SchemaMismatch` for a column that the queue lacks,
    a value that does not fit, a null in a required column, or a string that is not valid UTF-8.
    With *mends*, for when nobody can act on a single row, ``?`` replaces the string's wrong bytes.
    """
    table = _as_table(rows, schema, queue)
    if table.schema.equals(schema, check_metadata=False):
        return _checked(table, schema, queue, mends)
    table = table.drop_columns([name for name in table.column_names if name in METADATA.names])
    _check_known(table.column_names, schema, queue)
    columns = [_conform_column(table, field, queue) for field in schema]
    return _checked(pa.table(columns, schema=schema), schema, queue, mends)


def check_insertable(incoming: pa.Schema, schema: pa.Schema, queue: str) -> None:
    """Raise `SchemaMismatch` unless the types of *incoming* rows can be loaded."""
    empty = incoming.empty_table()
    conform(empty, schema, queue)
    for field in schema:
        if field.name in incoming.names:
            continue
        if not field.nullable:
            raise SchemaMismatch(f"queue {queue!r}: column {field.name!r} is required and missing")


def check_known(queue: str, there: Iterable[str], known: Iterable[str]) -> None:
    """Raise `SchemaMismatch` if a queue has columns that a query does not know."""
    new = sorted({*there} - {*known})
    if new:
        raise SchemaMismatch(
            f"ignis source: queue {queue!r} has the new column {listed(new, quoted=True)}, which "
            "this query does not know, and its next messages may have values there; nothing was "
            "lost. Load the DataFrame again, and restart the query with its checkpoint. To go on "
            "without new columns, choose columns with .schema(...)"
        )


def evolve(old: pa.Schema, new: pa.Schema, queue: str) -> pa.Schema:
    """
    Return the schema *old* followed by the columns that *new* adds.

    Raises `SchemaMismatch` if *new* changes a column of *old* or adds one that is not nullable.
    """
    new = canonical(new)
    for field in old:
        if field.name in new.names:
            other = new.field(field.name)
            if not other.type.equals(field.type) or other.nullable != field.nullable:
                raise SchemaMismatch(
                    f"queue {queue!r}: column {field.name!r} is {_describe(field)} and cannot "
                    f"become {_describe(other)}; only new nullable columns can be added"
                )
    added = [field for field in new if field.name not in old.names]
    for field in added:
        if not field.nullable:
            raise SchemaMismatch(
                f"queue {queue!r}: new column {field.name!r} must be nullable, since older "
                "messages have no value for it"
            )
    return canonical(pa.schema([*old, *added]))


def upgrade(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of older, narrower or similar columns in *schema*; new columns are null."""
    if batch.schema.equals(schema, check_metadata=False):
        return batch
    columns = [
        _in_type(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in the types of a queue: Spark's own times have the zone of its session."""
    return upgrade(batch, pa.schema([canonical_field(field, field.name) for field in batch.schema]))


def _in_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)


def _as_table(rows: Loadable, schema: pa.Schema, queue: str) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "__arrow_c_stream__"):
        return of_data_frame(rows, queue)
    wrong = (
        f"queue {queue!r}: load a pyarrow Table, a data frame, or a list of dicts or of objects of "
        "one class, not "
    )
    if not isinstance(rows, Iterable):
        raise SchemaMismatch(f"{wrong}{type(rows).__name__}")
    dicts = list(rows)
    for row in dicts:
        if not isinstance(row, dict | Mapping):
            raise SchemaMismatch(f"{wrong}{type(rows).__name__} of {type(row).__name__}")
    _check_known(set().union(*dicts) - set(METADATA.names), schema, queue)
    columns = [_column([row.get(field.name) for row in dicts], field, queue) for field in schema]
    return pa.table(columns, schema=schema)


def of_data_frame(frame: Any, queue: str) -> pa.Table:
    """Return the columns of a data frame of pandas, Polars or others, without its row labels."""
    try:
        table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        kind = type(frame).__name__
        raise SchemaMismatch(f"queue {queue!r}: Arrow cannot read the {kind}: {error}") from error
    return table.drop_columns([name for name in table.column_names if _ROW_LABELS.match(name)])


def _check_known(names: Iterable[str], schema: pa.Schema, queue: str) -> None:
    seen = set()
    for name in names:
        if name not in schema.names:
            raise SchemaMismatch(
                f"queue {queue!r} has no column {name!r}"
                f"{nearest(str(name), schema.names) or '.'} Columns: {', '.join(schema.names)}"
            )
        if name in seen:
            raise SchemaMismatch(f"queue {queue!r}: column {name!r} appears twice")
        seen.add(name)


def _column(values: list[Any], field: pa.Field, queue: str) -> pa.Array:
    # When Arrow makes whole numbers or dates, it silently cuts off fractions and hours. A cast from
    # the type of the values does not.
    kind = None if _is_cut_to(field.type) else field.type
    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatch(
            f"queue {queue!r}: column {field.name!r} is {field.type}; values do not fit: {error}"
        ) from error
    if _has_naive(values, field.type):
        raise SchemaMismatch(
            f"queue {queue!r}: column {field.name!r} is {field.type}, and a time has no time zone; "
            "give it one, as datetime.now(UTC) does"
        )
    if kind is not None and _t.is_nested(kind):
        _check_within(values, field, queue)
    return _cast(column, field, queue)


def _has_naive(values: list[Any], kind: pa.DataType) -> bool:
    """Return whether a time has no time zone where the type is in UTC, even within lists."""
    if _t.is_list(kind) and "tz=" in str(kind):
        return any(_has_naive(each, kind.value_type) for each in values if each is not None)
    return bool(getattr(kind, "tz", None)) and any(
        type(value) is datetime and value.tzinfo is None for value in values
    )


def _check_within(values: list[Any], field: pa.Field, queue: str) -> None:
    """Raise `SchemaMismatch` for what Arrow has cut or left out within values."""
    kind, there = field.type, [value for value in values if value is not None]
    inner: list[tuple[pa.Field, list[Any]]] = []
    if _t.is_struct(kind):
        dicts = [value for value in there if isinstance(value, Mapping)]
        names = [part.name for part in kind]
        for name in set().union(*dicts) - {*names}:
            raise SchemaMismatch(
                f"queue {queue!r}: column {field.name!r} has no field {name!r}"
                f"{nearest(str(name), names)}"
            )
        inner = [(part, [value.get(part.name) for value in dicts]) for part in kind]
    elif _t.is_map(kind):
        of_each = (value.items() if isinstance(value, Mapping) else value for value in there)
        pairs = [pair for each in of_each for pair in each if not isinstance(pair, Mapping)]
        inner = [(kind.key_field, [key for key, _ in pairs])]
        inner += [(kind.item_field, [item for _, item in pairs])]
    elif _t.is_list(kind):
        part = kind.value_field
        # Not for long lists of fractions or texts.
        if _t.is_nested(part.type) or _is_cut_to(part.type):
            inner = [(part, [item for value in there for item in value])]
    elif _is_cut_to(kind):
        _column(there, field, queue)
    for part, found in inner:
        _check_within(found, part.with_name(f"{field.name}.{part.name}"), queue)


def _is_cut_to(kind: pa.DataType) -> bool:
    while _t.is_list(kind):
        kind = kind.value_type
    return bool(_t.is_integer(kind) or _t.is_date(kind) or _t.is_timestamp(kind))


def _conform_column(table: pa.Table, field: pa.Field, queue: str) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if not field.nullable and table.num_rows:
            raise SchemaMismatch(f"queue {queue!r}: column {field.name!r} is required and missing")
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    return _cast(table.column(field.name), field, queue)


def _cast(
    column: pa.Array | pa.ChunkedArray, field: pa.Field, queue: str
) -> pa.Array | pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    why = ""
    if are_alike(column.type, field.type):
        try:
            return column.cast(field.type)
        except (pa.ArrowException, ValueError) as error:
            why = f": {error}"
    raise SchemaMismatch(
        f"queue {queue!r}: column {field.name!r} is {field.type}; "
        f"{column.type} values do not fit{why}"
    )


def _checked(table: pa.Table, schema: pa.Schema, queue: str, mends: bool) -> pa.Table:
    foreign = []
    for field, column in zip(schema, table.columns, strict=True):
        for chunk in column.chunks:
            _check_nulls(chunk, field, queue)
        if not is_valid(column):
            foreign.append(field.name)
    if not foreign:
        return table
    wrong = f"queue {queue!r}: column {foreign[0]!r} has strings that are not valid UTF-8"
    if not mends:
        raise SchemaMismatch(f"{wrong}; use a column of binary values, or decode them first")
    _log.warning("%s; ? replaces their wrong bytes; use a column of binary values", wrong)
    return valid_table(table)


def _check_nulls(array: pa.Array, field: pa.Field, queue: str) -> None:
    """Raise `SchemaMismatch` if a value is null that may not be, itself or within others."""
    if not field.nullable and array.null_count:
        raise SchemaMismatch(f"queue {queue!r}: column {field.name!r} may not be null")
    # The text of a map does not show what it requires.
    kind = str(field.type)
    if " not null" in kind or "map<" in kind:
        for at, part in enumerate(parts_of(array.drop_null())):
            within = field.type.field(at)
            _check_nulls(part, within.with_name(f"{field.name}.{within.name}"), queue)


def described(schema: pa.Schema) -> str:
    """Return the columns for a message: ``id int64 not null, name string``."""
    return ", ".join(f"{field.name} {_describe(field)}" for field in schema)


def _describe(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
