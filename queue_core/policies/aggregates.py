"""How messages become one: each column is taken over in its own way, all messages at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOption, SchemaMismatch
from queue_core.names import nearest
from queue_core.rows import Numbers
from queue_core.schema import is_number

#: Ways to take a column over: the last value, the first, and those that leave NULL out.
FUNCTIONS = ("sum", "min", "max", "count", "first", "last")


@dataclass(frozen=True, slots=True)
class Take:
    """One column, and how it is taken over: ``sum(amount)``."""

    function: str
    column: str

    def check(self, schema: pa.Schema, key: str) -> None:
        """Raise `BadOption` unless the column can be taken over so."""
        if self.function not in FUNCTIONS:
            hint = nearest(self.function, FUNCTIONS)
            raise BadOption(f"{self.function!r} is unknown{hint}; use {', '.join(FUNCTIONS)}")
        if self.column not in schema.names:
            raise BadOption(
                f"{self.column!r} is no column of the queue{nearest(self.column, schema.names)}"
            )
        if self.column == key:
            raise BadOption(f"{self.column!r} is the key, in which messages that merge agree")
        kind = schema.field(self.column).type
        if not _suits(self.function, kind):
            raise BadOption(f"{self.function}({self.column}): it does not go with {kind}")

    def fold(self, column: pa.ChunkedArray, groups: Numbers, count: int) -> pa.Array:
        """
        The value that each group becomes.

        The first *count* elements are the first of the groups 0, 1, …; the others follow in their
        order. Raises `SchemaMismatch` when a value does not fit its column.
        """
        if self.function == "first":
            return _one(column.slice(0, count))
        if self.function == "last":
            last = np.empty(count, np.int64)
            last[groups] = np.arange(len(groups))
            return _one(column.take(pa.array(last)))
        if self.function == "count":
            before = pc.fill_null(_one(column.slice(0, count)), 1).cast(pa.int64())
            more = pa.array(np.bincount(groups, minlength=count) - 1)
            return self._fitting(pc.add(before, more), column.type)
        kind = pa.float64() if pa.types.is_floating(column.type) else column.type
        table = pa.table({"group": groups, "value": column.cast(kind)})
        # One thread, for sums of fractions that are the same each time.
        folded = table.group_by("group", use_threads=False).aggregate([("value", self.function)])
        if self.function == "sum" and pa.types.is_integer(kind):
            self._check_sum(column, groups)
        return self._fitting(_one(folded.column(f"value_{self.function}")), column.type)

    def _fitting(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        try:
            return values.cast(kind)
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"column {self.column!r}: what {self.function} gives is not {kind}: {error}"
            ) from error

    def _check_sum(self, column: pa.ChunkedArray, groups: Numbers) -> None:
        """Arrow lets sums of integers run over; those of their halves do not."""
        values = column.cast(pa.int64()).fill_null(0).to_numpy()
        halves = pa.table({"group": groups, "high": values >> 32, "low": values & 0xFFFFFFFF})
        sums = halves.group_by("group").aggregate([("high", "sum"), ("low", "sum")])
        high = sums.column("high_sum").to_numpy() + (sums.column("low_sum").to_numpy() >> 32)
        if ((high < -(2**31)) | (high >= 2**31)).any():
            raise SchemaMismatch(f"column {self.column!r}: what sum gives is more than an int64")


def _suits(function: str, kind: pa.DataType) -> bool:
    if function in ("first", "last"):
        return True
    if function == "count":
        return bool(pa.types.is_integer(kind))
    if function == "sum":
        return is_number(kind)
    return bool(
        is_number(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
    )


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
