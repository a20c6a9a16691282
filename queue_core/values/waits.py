"""Waits of settled messages: the columns of a settlement that say when a message is due again."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import pyarrow as pa

from queue_core.errors import BadOutcome
from queue_core.values.durations import LONGEST_SECONDS
from queue_core.values.failure_kinds import check_table
from queue_core.values.ids import IdSet
from queue_core.values.schema import TIMESTAMP

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
#: The first and the last time that a datetime of Python can show, in microseconds since 1970.
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
_BOTH = "a message has both not_before and delay; give it one of them"
_OUTSIDE = "the column 'not_before' has a time outside of the years 1 to 9999"
_TOO_LONG = "the column 'delay' has a value that is negative or longer than 100 years"


@cache
def no_waits() -> pa.Table:
    """Return `WAITS` without a row."""
    return WAITS.empty_table()


def waits_of(rows: pa.RecordBatch | pa.Table, sidelined: Any, reloaded: Any) -> pa.Table:
    """Return the `WAITS` of a table of outcomes; raises `BadOutcome`."""
    given = {
        name: checked(name, rows.column(name)) for name in COLUMNS if name in rows.schema.names
    }
    given = {name: column for name, column in given.items() if column.null_count < len(column)}
    if not given:
        return no_waits()
    # Not at the top: a query waits for imports, and few settlements have waits.
    import pyarrow.compute as pc

    nothing = {name: pa.nulls(rows.num_rows, kind) for name, kind in COLUMNS.items()}
    columns = nothing | given
    if "dead" in given and _any(pc.and_(given["dead"].fill_null(False), reloaded)):
        raise BadOutcome("a message with dead=true is reloaded; dead is for the outcome sideline")
    if "not_before" in given and "delay" in given:
        both = pc.and_(columns["not_before"].is_valid(), columns["delay"].is_valid())
        if _any(both):
            raise BadOutcome(_BOTH)
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
                f"the column 'not_before' is {column.type}; use timestamps with a time zone: "
                "without one, a time is ambiguous"
            )
    elif name == "delay":
        kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)
        number = any(is_kind(column.type) for is_kind in kinds)
        if not number:
            raise BadOutcome(f"the column 'delay' is {column.type}; use a number of seconds")
    elif not pa.types.is_boolean(column.type):
        raise BadOutcome(f"the column 'dead' is {column.type}; use booleans")
    try:
        # Other units of a time could overflow; nanoseconds only lose what is too fine.
        safe = name == "not_before" and column.type.unit != "ns"
        column = column.cast(COLUMNS[name], safe=safe)
    except pa.ArrowInvalid as error:
        raise BadOutcome(_OUTSIDE) from error
    if name == "delay":
        import pyarrow.compute as pc

        fits = pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, LONGEST_SECONDS))
        if _any(pc.invert(fits.fill_null(True))):
            raise BadOutcome(_TOO_LONG)
    return column


def check_waits(waits: pa.Table) -> None:
    """Raise `BadOutcome` unless a table has the columns of `WAITS`, with valid values."""
    check_table("waits", waits, WAITS)
    if not waits.num_rows:
        return
    # Not at the top: a query waits for imports, and few settlements have waits.
    import pyarrow.compute as pc

    at, delay = waits.column("not_before"), waits.column("delay")
    if _any(pc.and_(at.is_valid(), delay.is_valid())):
        raise BadOutcome(_BOTH)
    if _any(pc.or_(pc.less(at, EARLIEST), pc.greater(at, LATEST))):
        raise BadOutcome(_OUTSIDE)
    if _any(pc.or_(pc.less(delay, 0), pc.greater(delay, int(LONGEST_SECONDS * 1e6)))):
        raise BadOutcome(_TOO_LONG)
    distinct = waits.group_by(WAITS.names).aggregate([])
    counted = pc.value_counts(distinct.column("message_id").combine_chunks())
    twice = counted.filter(pc.greater(counted.field("counts"), 1))
    if len(twice):
        raise BadOutcome(f"message {twice[0]['values']} has two times; give it one of them")


def dead_of(waits: pa.Table) -> IdSet:
    """Return the messages of `WAITS` that are not tried again."""
    if not waits.num_rows:
        return IdSet()
    dead = waits.column("dead").fill_null(False)
    return IdSet.of(waits.column("message_id").filter(dead))


def _any(mask: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(mask, min_count=0).as_py())
