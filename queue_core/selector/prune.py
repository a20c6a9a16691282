"""Evaluate conditions on statistics, without reading a row.

The outcome of each part shows whether rows can make it true, false or NULL. If a part has one
column with known distinct values, it is evaluated on them; otherwise, bounds decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.selector.functions import Prefix
from queue_core.selector.kernels import COALESCE, Values
from queue_core.selector.nodes import Column, FunctionCall, Literal, Node, evaluate, is_null
from queue_core.values.column_stats import ColumnStats, python_value


class Outcomes(NamedTuple):
    """The values that a condition can have for some rows."""

    true: bool
    false: bool
    null: bool

    @property
    def certain(self) -> bool:
        """Whether it is true for every row."""
        return not self.false and not self.null


_ANY = Outcomes(true=True, false=True, null=True)


class Bounds(NamedTuple):
    """A closed range that contains a value; None: no bound."""

    low: Any
    high: Any

    @property
    def only(self) -> bool:
        """Whether the range contains only one value."""
        return self.low is not None and bool(self.low == self.high)

    def meets(self, other: Bounds) -> bool:
        """Return whether a value of one range can equal a value of the other."""
        return not (self.below(other) or other.below(self))

    def below(self, other: Bounds) -> bool:
        """Return whether all values of this range are less than all values of the other."""
        return self.high is not None and other.low is not None and bool(self.high < other.low)


_OPEN = Bounds(None, None)


def outcomes(node: Node, stats: Mapping[str, ColumnStats]) -> Outcomes:
    """Return the possible values of a condition for rows with these statistics."""
    if isinstance(node, Literal):
        value = node.value.as_py()
        return Outcomes(value is True, value is False, value is None)
    known = _known_values(node, stats)
    if known is not None:
        return _tried(node, *known)
    if not isinstance(node, FunctionCall):
        return _ANY
    below = (outcomes(arg, stats) for arg in node.args)
    match node.kernel.name:
        case "and":
            return _all(list(below))
        case "or":
            return _opposite(_all([_opposite(part) for part in below]))
        case "not":
            return _opposite(*below)
        case "is true":
            (part,) = below
            return Outcomes(part.true, part.false or part.null, null=False)
    found = _by_bounds(node, stats)
    # A computation may have no result, for instance with a NULL argument.
    return (
        found if all(_is_never_null(arg, stats) for arg in node.args) else found._replace(null=True)
    )


def bounds(node: Node, stats: Mapping[str, ColumnStats]) -> Bounds:
    """Return the bounds of a node's values; a constant bounds itself."""
    if isinstance(node, Literal):
        return Bounds(python_value(node.value), python_value(node.value, up=True))
    if isinstance(node, Column):
        one = stats_of(node, stats)
        return _OPEN if one is None else Bounds(_without_zone(one.min), _without_zone(one.max))
    below = [bounds(arg, stats) for arg in node.args]
    if any(low is None or high is None for low, high in below):
        return _OPEN
    if node.kernel is COALESCE:
        return Bounds(min(low for low, _ in below), max(high for _, high in below))
    return _at_corners(node, below) if node.kernel.monotone else _OPEN


def stats_of(node: Node, stats: Mapping[str, ColumnStats]) -> ColumnStats | None:
    """Return the statistics of a node that is a whole column; None for another, or unknown ones."""
    return stats.get(node.path[0]) if isinstance(node, Column) and not node.path[1:] else None


def _known_values(
    node: Node, stats: Mapping[str, ColumnStats]
) -> tuple[frozenset[Any], bool] | None:
    if len(node.columns) != 1:
        return None
    one = stats.get(next(iter(node.columns)))
    if one is None or one.distinct is None:
        return None
    return one.distinct, one.null_count > 0


@lru_cache(maxsize=4096)
def _tried(node: Node, distinct: frozenset[Any], with_null: bool) -> Outcomes:
    """Evaluate the condition for each value of its only column."""
    values = [_without_zone(value) for value in distinct] + [None] * with_null

    def column_of(column: Column) -> pa.Array:
        # A field of a struct has distinct values only when there are none at all.
        return pa.array(values, column.type)

    try:
        found = evaluate(node, column_of)
    except pa.ArrowException:
        return _ANY
    true, false = pc.any(found).as_py(), pc.any(pc.invert(found)).as_py()
    return Outcomes(bool(true), bool(false), found.null_count > 0)


def _all(parts: list[Outcomes]) -> Outcomes:
    """AND: a part that is always false decides it."""
    decided = any(not part.true and not part.null for part in parts)
    return Outcomes(
        all(part.true for part in parts),
        any(part.false for part in parts),
        any(part.null for part in parts) and not decided,
    )


def _is_never_null(node: Node, stats: Mapping[str, ColumnStats]) -> bool:
    if isinstance(node, Literal):
        return not is_null(node)
    one = stats_of(node, stats)
    return one is not None and one.null_count == 0


def _by_bounds(node: FunctionCall, stats: Mapping[str, ColumnStats]) -> Outcomes:
    """Return the outcomes by the bounds of the arguments, assuming that none is NULL."""
    name, detail = node.kernel.name, node.kernel.detail
    if name == "is null":
        return _null_or_not(node.args[0], stats)
    if name in _COMPARISONS:
        left, right = (bounds(arg, stats) for arg in node.args)
        return _COMPARISONS[name](left, right)
    if name == "<=>" and any(isinstance(arg, Literal) and not is_null(arg) for arg in node.args):
        left, right = (bounds(arg, stats) for arg in node.args)
        # NULL never equals a constant.
        return Outcomes(left.meets(right), false=True, null=False)
    if isinstance(detail, Values):
        return _in(bounds(node.args[0], stats), detail)
    if isinstance(detail, Prefix):
        return _begins(bounds(node.args[0], stats), detail)
    return _ANY


def _null_or_not(node: Node, stats: Mapping[str, ColumnStats]) -> Outcomes:
    one = stats_of(node, stats)
    if one is None:
        return _ANY
    return Outcomes(one.null_count > 0, one.null_count < one.row_count, null=False)


def _equal(left: Bounds, right: Bounds) -> Outcomes:
    same = left.only and right.only and left.low == right.low
    return Outcomes(left.meets(right), not same, null=False)


def _less(left: Bounds, right: Bounds) -> Outcomes:
    open_below = left.low is None or right.high is None
    return Outcomes(open_below or left.low < right.high, not left.below(right), null=False)


def _opposite(part: Outcomes) -> Outcomes:
    return Outcomes(part.false, part.true, part.null)


_COMPARISONS: dict[str, Callable[[Bounds, Bounds], Outcomes]] = {
    "=": _equal,
    "<>": lambda left, right: _opposite(_equal(left, right)),
    "<": _less,
    ">": lambda left, right: _less(right, left),
    "<=": lambda left, right: _opposite(_less(right, left)),
    ">=": lambda left, right: _opposite(_less(left, right)),
}


def _in(values: Bounds, listed: Values) -> Outcomes:
    if values.low is None or values.high is None:
        return _ANY
    there = listed.any_between(values.low, values.high)
    # With NULL in the list, a value that is not found yields NULL.
    return Outcomes(there, not (there and values.only), null=not (there and values.only))


def _begins(values: Bounds, prefix: Prefix) -> Outcomes:
    """A text begins with a prefix if it lies between the prefix and the last text with it."""
    text = prefix.text
    below = values.high is not None and values.high < text
    above = values.low is not None and values.low > text and not values.low.startswith(text)
    inside = (
        prefix.whole
        and values.low is not None
        and values.high is not None
        and values.low.startswith(text)
        and values.high.startswith(text)
    )
    return Outcomes(not (below or above), not inside, null=False)


def _at_corners(node: FunctionCall, below: list[Bounds]) -> Bounds:
    """Bound a monotone call by its values at the bounds of its arguments."""
    corners = [
        [pa.scalar(value, arg.type) for value in (low, high)]
        for arg, (low, high) in zip(node.args, below, strict=True)
    ]
    try:
        found = [node.kernel.apply(*corner) for corner in product(*corners)]
    except pa.ArrowException:
        return _OPEN
    low = [python_value(value) for value in found]
    high = [python_value(value, up=True) for value in found]
    if any(value in (None, math.inf, -math.inf) for value in [*low, *high]):
        return _OPEN
    return Bounds(min(low), max(high))


def _without_zone(value: Any) -> Any:
    """Convert a timestamp with a zone to UTC without one."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
