"""Messages as Python dicts, converted column by column: several times faster than row by row.

A message that Python cannot represent does not harm the others: they are converted again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.values.failure_kinds import reason_of
from queue_core.values.waits import EARLIEST, LATEST


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Takes the place of a message that cannot be read."""

    #: Why it cannot be read.
    reason: str


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any] | Unreadable]:
    """Return one dict per row; structs and maps are dicts too, times are in UTC."""
    return each_of(batch, _dicts)


def each_of(batch: pa.RecordBatch, make: Callable[[pa.RecordBatch], list[Any]]) -> list[Any]:
    """Return what *make* returns for the rows; `Unreadable` for each single row that it refuses."""
    try:
        return make(batch)
    except Exception as error:  # noqa: BLE001 - Python or a user's type may refuse a value
        if batch.num_rows == 1:
            return [Unreadable(reason_of(error))]
    # Bisect to find the message.
    middle = batch.num_rows // 2
    return each_of(batch.slice(0, middle), make) + each_of(batch.slice(middle), make)


def _dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    names = batch.schema.names
    columns = [values_of(column) for column in batch.columns]
    return [dict(zip(names, row, strict=False)) for row in zip(*columns, strict=True)]


def values_of(column: pa.Array) -> list[Any]:
    """Return the values of a column; structs and maps are dicts, times are in UTC."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "us" and _within(column):
        # pyarrow makes times one by one, which takes ten times as long.
        naive = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
        if column.type.tz is None:
            return naive  # type: ignore[no-any-return]
        return [time and time.replace(tzinfo=UTC) for time in naive]
    if pa.types.is_nested(column.type):
        return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _within(times: pa.Array) -> bool:
    bounds = pc.min_max(times.cast(pa.int64()))
    earliest, latest = bounds["min"].as_py(), bounds["max"].as_py()
    return earliest is None or (earliest >= EARLIEST and latest <= LATEST)
