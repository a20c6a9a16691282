"""A user's dataclass or pydantic model as the class of a queue's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import pyarrow as pa

from queue_core.errors import SchemaMismatch
from queue_core.handling.objects.codecs import Misfit, nested
from queue_core.handling.objects.fields import fields_of, is_message_class, maker
from queue_core.handling.objects.python_rows import Unreadable, each_of, values_of
from queue_core.values.failure_kinds import reason_of
from queue_core.values.names import nearest
from queue_core.values.schema import canonical


class MessageClass:
    """The objects of a class as columns, and back. Get it from `message_class`."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        try:
            self._fields = fields_of(kind)
        except Misfit as error:
            raise SchemaMismatch(f"class {kind.__name__}: {error}") from error
        self._make = maker(kind, self._fields)
        #: The columns of a queue for objects of the class; one for each field.
        self.schema = canonical(pa.schema([one.codec.field(one.name) for one in self._fields]))

    def check_fits(self, schema: pa.Schema, queue: str) -> None:
        """Raise `SchemaMismatch` unless each field of the class fits a column of a queue."""
        where = f"queue {queue!r} does not fit class {self.kind.__name__}"
        for field in self.schema:
            if field.name not in schema.names:
                raise SchemaMismatch(
                    f"{where}: it has no column {field.name!r}"
                    f"{nearest(field.name, schema.names) or '.'} Remove the field, or add the "
                    "column with add_columns"
                )
            column = schema.field(field.name).type
            if not fits(field.type, column):
                raise SchemaMismatch(
                    f"{where}: column {field.name!r} is {column}, and the field is {field.type}"
                )

    def table_of(self, objects: Sequence[Any], queue: str) -> pa.Table:
        """Return objects as a table. Raises `SchemaMismatch`."""
        for found in set(map(type, objects)):
            if found is not self.kind:
                raise SchemaMismatch(
                    f"queue {queue!r}: load objects of one class; some are {self.kind.__name__}, "
                    f"and some {found.__name__}"
                )
        columns = []
        for field, column in zip(self._fields, self.schema, strict=True):
            values = list(map(attrgetter(field.name), objects))
            try:
                columns.append(pa.array(field.codec.encoded(values), column.type))
            except (Misfit, pa.ArrowException, OverflowError) as error:
                raise SchemaMismatch(
                    f"queue {queue!r}: field {field.name!r} of {self.kind.__name__}: {error}"
                ) from error
        return pa.table(columns, schema=self.schema)

    def objects_of(self, batch: pa.RecordBatch) -> list[Any]:
        """Return an object for each row; `Unreadable` for a row that cannot become one."""
        return each_of(batch, self._objects)

    def _objects(self, batch: pa.RecordBatch) -> list[Any]:
        columns = [
            nested(field.name, field.codec.decoded, values_of(batch.column(field.name)))
            for field in self._fields
        ]
        made: list[Any] = []
        for values in zip(*columns, strict=True):
            try:
                made.append(self._make(values))
            except Exception as error:  # noqa: BLE001 - a user's class may raise anything
                made.append(Unreadable(reason_of(error)))
        return made

    def objects_in(self, table: pa.Table | pa.RecordBatch, queue: str) -> list[Any]:
        """Return an object for each row. Raises `SchemaMismatch` if none can be made of one."""
        if isinstance(table, pa.Table):
            table = table.combine_chunks()
            batches = table.to_batches()
        else:
            batches = [table]
        made = [one for batch in batches for one in self.objects_of(batch)]
        for number, one in enumerate(made):
            if isinstance(one, Unreadable):
                ids = table.column("_message_id") if "_message_id" in table.schema.names else None
                which = f"row {number}" if ids is None else f"message {ids[number]}"
                raise SchemaMismatch(
                    f"queue {queue!r}: {which} is not a {self.kind.__name__}: {one.reason}"
                )
        return made


def message_class(kind: Any) -> MessageClass:
    """Return a class of messages; raises `SchemaMismatch` if it is none."""
    if not is_message_class(kind):
        raise SchemaMismatch(
            f"{kind!r} is not a dataclass or a pydantic model; give the class itself"
        )
    return _known(kind)


@lru_cache(maxsize=64)
def _known(kind: type) -> MessageClass:
    return MessageClass(kind)


def as_table(rows: Sequence[Any], queue: str) -> pa.Table | None:
    """Return objects of a message class as a table; None for rows of another kind."""
    if not rows or isinstance(rows[0], Mapping) or not is_message_class(type(rows[0])):
        return None
    return message_class(type(rows[0])).table_of(rows, queue)


_t = pa.types


def fits(needed: pa.DataType, column: pa.DataType) -> bool:
    """
    Return whether values of a column have the Python type of a field.

    The column may have narrower numbers, other digits of decimals, more fields in structs, and
    nulls where the field has none. Values are checked when they are loaded and read.
    """
    if _t.is_list(needed) and _t.is_list(column):
        return fits(needed.value_type, column.value_type)
    if _t.is_map(needed) and _t.is_map(column):
        return fits(needed.key_type, column.key_type) and fits(needed.item_type, column.item_type)
    if _t.is_struct(needed) and _t.is_struct(column):
        return all(
            column.get_field_index(field.name) >= 0
            and fits(field.type, column.field(field.name).type)
            for field in needed
        )
    if _t.is_timestamp(needed) and _t.is_timestamp(column):
        return bool(needed.tz) == bool(column.tz)
    alike = (_t.is_integer, _t.is_floating, _t.is_decimal)
    return bool(needed.equals(column) or any(one(needed) and one(column) for one in alike))
