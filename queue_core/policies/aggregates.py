"""Aggregates: how the columns of merging messages become one value, for all messages at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOption, SchemaMismatch
from queue_core.policies.numbering import last_of
from queue_core.values.arrow_types import is_number
from queue_core.values.names import nearest
from queue_core.values.rows import Numbers

#: How a column is merged. All functions except ``first`` and ``last`` ignore NULL.
FUNCTIONS = ("sum", "min", "max", "count", "first", "last")


@dataclass(frozen=True, slots=True)
class Take:
    """
    How one column of merging messages is merged, such as ``Take("sum", "amount")``.

    Args:
        function: ``"sum"``, ``"min"`` or ``"max"`` of all values that are not NULL; ``"count"``,
            which adds one for each new message to the waiting message's value (NULL counts as 1);
            ``"last"``, the new message's value; ``"first"``, the waiting message's value. The last
            two may be NULL.
        column: The name of the column, which must not be the queue's key. ``sum`` needs numbers,
            ``count`` an integer type, ``min`` and ``max`` a type with an order.
    """

    function: str
    column: str

    def check(self, schema: pa.Schema, key: str | None) -> None:
        """
        Check the function and the column against a queue.

        Args:
            schema: The queue's columns.
            key: The queue's key column.

        Raises:
            BadOption: The function or the column is unknown, the column is the key, or the function
                is not defined for its type.
        """
        if self.function not in FUNCTIONS:
            hint = nearest(self.function, FUNCTIONS)
            raise BadOption(
                f"function {self.function!r} is unknown{hint}; use {', '.join(FUNCTIONS)}"
            )
        if self.column not in schema.names:
            raise BadOption(
                f"the queue has no column {self.column!r}{nearest(self.column, schema.names)}"
            )
        if self.column == key:
            raise BadOption(
                f"column {self.column!r} is the key, which merging messages share; remove it"
            )
        kind = schema.field(self.column).type
        if not _suits(self.function, kind):
            raise BadOption(
                f"{self.function}({self.column}): {self.function} is not defined for {kind} columns"
            )

    def fold(self, column: pa.ChunkedArray, groups: Numbers, count: int) -> pa.Array:
        """
        Merge the values of each group into one.

        Args:
            column: The values of all groups. The first *count* of them are the first values of the
                groups 0, 1, …; the others follow in their order.
            groups: The group of each value.
            count: The number of groups.

        Returns:
            The merged value of each group.

        Raises:
            SchemaMismatch: A merged value does not fit the column's type.
        """
        if self.function == "first":
            return _one(column.slice(0, count))
        if self.function == "last":
            return _one(column.take(pa.array(last_of(groups, count))))
        if self.function == "count":
            before = pc.fill_null(_one(column.slice(0, count)), 1).cast(pa.int64())
            more = pa.array(np.bincount(groups, minlength=count) - 1)
            return self._fitting(pc.add(before, more), column.type)
        kind = pa.float64() if pa.types.is_floating(column.type) else column.type
        if self.function == "sum" and pa.types.is_decimal(kind):
            # Arrow ignores an overflow of 38 digits, too.
            kind = pa.decimal256(76, kind.scale)
        table = pa.table({"group": groups, "value": column.cast(kind)})
        # One thread, so that sums of fractions are the same each time.
        folded = table.group_by("group", use_threads=False).aggregate([("value", self.function)])
        if self.function == "sum" and pa.types.is_integer(kind):
            self._check_sum(column, groups)
        return self._fitting(_one(folded.column(f"value_{self.function}")), column.type)

    def _fitting(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        try:
            return values.cast(kind)
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"column {self.column!r}: the result of {self.function} does not fit {kind}: "
                f"{error}"
            ) from error

    def _check_sum(self, column: pa.ChunkedArray, groups: Numbers) -> None:
        """Raise `SchemaMismatch` for an overflow, which Arrow ignores; sums of halves have none."""
        values = column.cast(pa.int64()).fill_null(0).to_numpy()
        halves = pa.table({"group": groups, "high": values >> 32, "low": values & 0xFFFFFFFF})
        sums = halves.group_by("group").aggregate([("high", "sum"), ("low", "sum")])
        high = sums.column("high_sum").to_numpy() + (sums.column("low_sum").to_numpy() >> 32)
        if ((high < -(2**31)) | (high >= 2**31)).any():
            raise SchemaMismatch(f"column {self.column!r}: the result of sum does not fit int64")


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
