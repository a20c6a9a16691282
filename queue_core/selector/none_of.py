"""A condition that a column has none of some values, for sets that change from firing to firing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.values.column_stats import ColumnStats


@dataclass(frozen=True, slots=True)
class NoneOf:
    """Selects the rows whose value of a column is none of some; None stands for null."""

    column: str
    values: frozenset[Any]
    #: Results are not worth keeping, as the next firing has other values.
    repeatable: ClassVar[bool] = False

    @property
    def columns(self) -> frozenset[str]:
        """The column."""
        return frozenset({self.column})

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """Return true for each row with another value."""
        column = rows.column(self.column)
        found = pc.is_in(column, value_set=pa.array(list(self.values), column.type))
        other = pc.invert(found)
        return other.combine_chunks() if isinstance(other, pa.ChunkedArray) else other

    def may_match(self, stats: Mapping[str, ColumnStats]) -> bool:
        """Return whether a row with such statistics may have another value."""
        known = self._known(stats)
        return known is None or not known <= self.values

    def must_match(self, stats: Mapping[str, ColumnStats]) -> bool:
        """Return whether each row with such statistics has another value."""
        known = self._known(stats)
        return known is not None and known.isdisjoint(self.values)

    def _known(self, stats: Mapping[str, ColumnStats]) -> frozenset[Any] | None:
        """Return all values that rows with such statistics may have; None if they are unknown."""
        one = stats.get(self.column)
        if one is None or one.distinct is None:
            return None
        return one.distinct | {None} if one.null_count else one.distinct
