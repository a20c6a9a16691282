"""`Predicate`: a Python function over Arrow columns that selects messages, like a `Selector`.

A function may give another result each time, so that its results are never cached, and statistics
say nothing about them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadSelector
from queue_core.values.column_stats import ColumnStats
from queue_core.values.names import nearest

#: A function of columns that returns a boolean for each row.
Function: TypeAlias = Callable[[pa.RecordBatch], "pa.BooleanArray | pa.ChunkedArray"]


@dataclass(frozen=True)
class Predicate:
    """
    A function that selects messages, and the columns that it reads.

    Use it as the *selector* of `Queue.fire`, `Queue.peek`, `Queue.browse` or `ConsumerPool`. A
    plain function does too, and then gets all columns, which takes longer to read. Source: Herzner,
    Message Queue Patterns, Selectable-Message Queue: ``eval(in Selector)``.

    Args:
        function: Called with a pyarrow RecordBatch of some waiting messages, at least one; returns
            a pyarrow BooleanArray with one value per message: true selects it, false and null do
            not. It must not change the queue, is called more than once for a message, and also for
            messages that the firing then does not take.
        columns: Names of the columns of the RecordBatch: of the queue, of the metadata (`METADATA`)
            or ``_age``, the seconds since a message was loaded. By default, all of them.
    """

    function: Function
    columns: Sequence[str] | None = None


@dataclass(frozen=True)
class FunctionSelector:
    """A predicate over the columns of a queue; has the methods of `Selector`."""

    #: A function may have another result each time.
    repeatable: ClassVar[bool] = False
    function: Function
    #: The columns that the function gets, with the queue's types.
    schema: pa.Schema = field(repr=False)

    @classmethod
    def of(cls, given: Predicate | Function, schema: pa.Schema) -> FunctionSelector:
        """Bind a predicate or a function to a queue's columns; raises `BadSelector`."""
        predicate = given if isinstance(given, Predicate) else Predicate(given)
        function, names = predicate.function, predicate.columns
        if not callable(function):
            what = "a predicate has" if isinstance(given, Predicate) else "a selector is a text or"
            raise BadSelector(f"{what} a function, not {type(function).__name__}")
        if names is None:
            return cls(function, schema)
        if isinstance(names, str):
            raise BadSelector(
                f"{_named(function)}: columns={names!r}: give a list of names, such as [{names!r}]"
            )
        for name in names:
            if name not in schema.names:
                raise BadSelector(
                    f"{_named(function)}: there is no column {name!r}{nearest(name, schema.names)}"
                )
        return cls(function, pa.schema([schema.field(name) for name in dict.fromkeys(names)]))

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that the function gets."""
        return frozenset(self.schema.names)

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """Return true for each row that the function selects; raises `BadSelector`."""
        if rows.num_rows == 0:
            return pa.nulls(0, pa.bool_())
        columns = [_whole(rows.column(name)) for name in self.schema.names]
        batch = pa.RecordBatch.from_arrays(columns, names=self.schema.names)
        name = _named(self.function)
        try:
            found = self.function(batch)
        except Exception as error:
            raise BadSelector(f"{name} raised {type(error).__name__}: {error}") from error
        found = _whole(found) if isinstance(found, pa.ChunkedArray) else found
        if not isinstance(found, pa.BooleanArray):
            kind = found.type if isinstance(found, pa.Array) else type(found).__name__
            raise BadSelector(f"{name} returned {kind}; return a pyarrow BooleanArray")
        if len(found) != len(batch):
            raise BadSelector(
                f"{name} returned {len(found)} values for {len(batch)} messages; return one "
                "boolean for each"
            )
        return pc.fill_null(found, False)

    def may_match(self, stats: Mapping[str, ColumnStats]) -> bool:
        """Return true: statistics do not show what a function selects."""
        return True

    def must_match(self, stats: Mapping[str, ColumnStats]) -> bool:
        """Return false: statistics do not show what a function selects."""
        return False


def _named(function: object) -> str:
    name = getattr(function, "__qualname__", None) or repr(function)
    module = getattr(function, "__module__", None)
    return f"the selector {module}.{name}" if module else f"the selector {name}"


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
