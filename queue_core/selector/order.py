"""`Order`: an ORDER BY over columns, which sorts messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import total_ordering
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from sqlglot import TokenType, exp

from queue_core.selector.columns import touched, work_out
from queue_core.selector.grammar import understand
from queue_core.selector.nodes import Literal, Node
from queue_core.selector.prune import bounds, stats_of
from queue_core.selector.syntax import SourceText
from queue_core.selector.types import is_ordered
from queue_core.values.column_stats import ColumnStats, python_value

#: A heap is faster than a sort below this part of the rows.
_FEW = 1 / 8
_ROW = "row"

#: A rank, then the value if the rank is that of values.
_Rank: TypeAlias = tuple[Any, ...]
#: A rank for each key of an order; the lesser comes first.
SortKey: TypeAlias = tuple[_Rank, ...]


class Key(NamedTuple):
    """One sort key of an order."""

    node: Node
    descending: bool
    nulls_first: bool

    @property
    def nan_rank(self) -> int:
        """NaN is greater than all numbers."""
        return 1 if self.descending else 3

    @property
    def null_rank(self) -> int:
        """NULL comes last by default."""
        return 0 if self.nulls_first else 4


#: Between those of NaN and NULL, in either direction.
_VALUE_RANK = 2
_FIRST, _LAST = (-1,), (5,)


@dataclass(frozen=True)
class Order:
    """
    An ORDER BY over the columns of a queue; equal messages stay in their order.

    It is compared, hashed and pickled by its text and columns, and parsed again when unpickled.
    """

    text: str
    #: The columns that it uses, with the queue's types.
    schema: pa.Schema
    _keys: tuple[Key, ...] = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, schema: pa.Schema) -> Order:
        """
        Parse an order such as ``priority DESC, size``.

        ``MIN(size)`` is ``size ASC`` and ``MAX(size)`` is ``size DESC``. NULLs come last unless
        ``NULLS FIRST`` is given. Raises `BadSelector`, which shows the fault and its position.
        """
        parts = [_key(part, schema) for part in SourceText.of("order", text).parts()]
        names = frozenset[str]().union(*(names for _, names in parts))
        return cls(text, touched(names, schema), tuple(key for key, _ in parts))

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that the order uses."""
        return frozenset(self.schema.names)

    def indices(self, rows: pa.RecordBatch | pa.Table) -> pa.UInt64Array:
        """Return the numbers of the rows in this order."""
        table, sort_keys = self._sortable(rows)
        return pc.sort_indices(table, sort_keys=sort_keys)

    def top(
        self, rows: pa.RecordBatch | pa.Table, k: int, ties: pa.ChunkedArray | None = None
    ) -> pa.UInt64Array:
        """
        Return the first *k* of `indices`, faster if there are few.

        Among equal rows, the one with the least value of *ties* comes first, if these are given.
        """
        table, sort_keys = self._sortable(rows)
        at = pa.array(np.arange(rows.num_rows)) if ties is None else ties
        table = table.append_column(_ROW, at)
        sort_keys.append((_ROW, "ascending"))
        if k >= rows.num_rows * _FEW:
            return pc.sort_indices(table, sort_keys=sort_keys).slice(0, k)
        return pc.select_k_unstable(table, k, sort_keys)

    def sort_key(self, rows: pa.RecordBatch | pa.Table, row: int) -> SortKey:
        """Return the sort key of a row: of two rows, the one with the lesser key comes first."""
        values = work_out(
            [key.node for key in self._keys], rows.slice(row, 1), self.schema, self.text
        )
        return tuple(_rank(key, value[0]) for key, value in zip(self._keys, values, strict=True))

    def bound(self, stats: Mapping[str, ColumnStats]) -> SortKey:
        """
        Return a sort key that no row precedes, given statistics of all rows.

        The rows can be skipped once enough other rows have this key or a lesser one.
        """
        return tuple(_first_rank(key, stats) for key in self._keys)

    def _sortable(self, rows: pa.RecordBatch | pa.Table) -> tuple[pa.Table, list[tuple[str, str]]]:
        """Return columns to sort by; Arrow puts NaN and NULL last among equal ranks."""
        columns: dict[str, pa.ChunkedArray] = {}
        sort_keys = []
        found = work_out([key.node for key in self._keys], rows, self.schema, self.text)
        for at, (key, values) in enumerate(zip(self._keys, found, strict=True)):
            ranks = _ranks(key, values)
            if ranks is not None:
                columns[f"rank {at}"] = ranks
                sort_keys.append((f"rank {at}", "ascending"))
            columns[f"value {at}"] = values
            sort_keys.append((f"value {at}", "descending" if key.descending else "ascending"))
        return pa.table(columns).combine_chunks(), sort_keys

    def __reduce__(self) -> tuple[Callable[..., Order], tuple[str, pa.Schema]]:
        return Order.parse, (self.text, self.schema)


@total_ordering
@dataclass(frozen=True, slots=True)
class _Backwards:
    """A value in reverse order: less if the value is greater."""

    value: Any

    def __lt__(self, other: _Backwards) -> bool:
        return bool(other.value < self.value)


def _key(part: SourceText, schema: pa.Schema) -> tuple[Key, frozenset[str]]:
    """Parse one part of an order; return its key and the columns that it names."""
    part, nulls = _without_words(part, ("NULLS", "FIRST"), ("NULLS", "LAST"))
    part, direction = _without_words(part, ("ASC",), ("DESC",))
    tree = part.tree()
    if isinstance(tree, exp.Min | exp.Max) and not tree.expressions:
        if direction:
            name = tree.sql_name()
            raise part.fault(f"{name} is a direction; leave {direction[0]} out", *part.span())
        direction = ("DESC",) if isinstance(tree, exp.Max) else ("ASC",)
        tree = tree.this
    node, names = understand(tree, part, schema)
    if isinstance(node, Literal):
        raise part.fault("an order needs a column", *part.span())
    if not is_ordered(node.type):
        raise part.fault(f"values of {node.type} have no order", *part.span())
    return Key(node, direction == ("DESC",), nulls == ("NULLS", "FIRST")), names


def _without_words(
    part: SourceText, *endings: tuple[str, ...]
) -> tuple[SourceText, tuple[str, ...]]:
    """Remove the words at the end of a part, if it has them; quoted words are names."""
    words = [
        "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else token.text.upper()
        for token in part.tokens
    ]
    for ending in endings:
        rest = len(words) - len(ending)
        if rest > 0 and tuple(words[rest:]) == ending:
            return replace(part, tokens=part.tokens[:rest]), ending
    return part, ()


def _ranks(key: Key, values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return ranks to sort by before the values, unless NaN and NULL come last anyway."""
    nan = pc.is_nan(values) if pt.is_floating(values.type) and key.descending else None
    has_nan = nan is not None and pc.any(nan).as_py()
    if not has_nan and not (key.nulls_first and values.null_count):
        return None
    rank = pa.scalar(_VALUE_RANK, pa.int8())
    if has_nan:
        rank = pc.if_else(nan, pa.scalar(key.nan_rank, pa.int8()), rank)
    return pc.if_else(pc.is_null(values), pa.scalar(key.null_rank, pa.int8()), rank)


def _rank(key: Key, value: pa.Scalar) -> _Rank:
    if not value.is_valid:
        return (key.null_rank,)
    # A value that Python cannot represent is rounded to a later key, so that no row is missed.
    exact = python_value(value, up=not key.descending)
    if exact is None:
        return (key.nan_rank,) if _is_nan(value) else _LAST
    return (_VALUE_RANK, _Backwards(exact) if key.descending else exact)


def _first_rank(key: Key, stats: Mapping[str, ColumnStats]) -> _Rank:
    low, high = bounds(key.node, stats)
    best = high if key.descending else low
    if best is None:
        return _FIRST
    one = stats_of(key.node, stats)
    if key.nulls_first and (one is None or one.null_count > 0):
        return (key.null_rank,)
    return (_VALUE_RANK, _Backwards(best) if key.descending else best)


def _is_nan(value: pa.Scalar) -> bool:
    return bool(pt.is_floating(value.type) and math.isnan(value.as_py()))
