"""Waits of settled messages: the columns of a settlement that say when a message is due again."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOutcome
from queue_core.schema import TIMESTAMP

Column: TypeAlias = "pa.Array | pa.ChunkedArray"

#: When settled messages are due again; messages without a row wait as the policy says.
WAITS = pa.schema(
    [
        pa.field("message_id", pa.int64()),
        #: A time by the catalog's clock: microseconds since 1970.
        pa.field("not_before", pa.int64()),
        #: Microseconds, counted from the settlement.
        pa.field("delay", pa.int64()),
        #: Whether the message is not tried again.
        pa.field("dead", pa.bool_()),
    ]
)
#: The columns of a table of outcomes, and their types.
COLUMNS = {"not_before": TIMESTAMP, "delay": pa.float64(), "dead": pa.bool_()}
_LONGEST = 3_155_760_000


def waits_of(rows: pa.RecordBatch | pa.Table, sidelined: Any, reloaded: Any) -> pa.Table:
    """Return the `WAITS` of a table of outcomes; raises `BadOutcome`."""
    given = {
        name: checked(name, rows.column(name)) for name in COLUMNS if name in rows.schema.names
    }
    given = {name: column for name, column in given.items() if column.null_count < len(column)}
    if not given:
        return WAITS.empty_table()
    nothing = {name: pa.nulls(rows.num_rows, kind) for name, kind in COLUMNS.items()}
    columns = nothing | given
    if "dead" in given and _any(pc.and_(given["dead"].fill_null(False), reloaded)):
        raise BadOutcome("a message with dead=true is reloaded; dead is for the outcome sideline")
    if "not_before" in given and "delay" in given:
        both = pc.and_(columns["not_before"].is_valid(), columns["delay"].is_valid())
        if _any(both):
            raise BadOutcome("a message has both not_before and delay; give it one of them")
    table = pa.table(
        {
            "message_id": rows.column("_message_id"),
            "not_before": columns["not_before"].cast(pa.int64()),
            "delay": pc.multiply(columns["delay"], 1e6).cast(pa.int64(), safe=False),
            "dead": columns["dead"],
        }
    ).cast(WAITS)
    times = pc.or_(columns["not_before"].is_valid(), columns["delay"].is_valid())
    waiting = pc.and_(times, pc.or_(sidelined, reloaded))
    dead = pc.and_(columns["dead"].fill_null(False), sidelined)
    return table.filter(pc.or_(waiting, dead))


def checked(name: str, column: Column) -> Column:
    """Return one of `COLUMNS` in its type; raises `BadOutcome`."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), COLUMNS[name])
    if name == "not_before":
        if not pa.types.is_timestamp(column.type) or column.type.tz is None:
            raise BadOutcome(
                f"the column 'not_before' is {column.type}; use timestamps with a time zone, since "
                "others could mean any place's time"
            )
    elif name == "delay":
        kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)
        number = any(is_kind(column.type) for is_kind in kinds)
        if not number:
            raise BadOutcome(f"the column 'delay' is {column.type}; use a number of seconds")
    elif not pa.types.is_boolean(column.type):
        raise BadOutcome(f"the column 'dead' is {column.type}; use booleans")
    column = column.cast(COLUMNS[name], safe=False)
    if name == "delay":
        fits = pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, _LONGEST))
        if _any(pc.invert(fits.fill_null(True))):
            raise BadOutcome(
                "the column 'delay' has a value that is negative or longer than 100 years; use "
                "seconds from now on"
            )
    return column


def _any(mask: Any) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())
