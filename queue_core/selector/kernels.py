"""SQL semantics on top of Arrow's functions, where the two differ.

Conditions are true, false or NULL. NaN equals itself and is greater than all numbers, as in Spark.
Nothing here raises an error because of the data.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from queue_core.selector.nodes import Datum, Kernel
from queue_core.values.column_stats import python_value

_NULL = pa.scalar(None)
_FALSE = pa.scalar(False)


def null_unless(condition: Datum, value: Datum) -> Datum:
    """Return the value where the condition is true, and NULL elsewhere."""
    return pc.if_else(condition, value, _NULL)


def conjunction(*conditions: Datum) -> Datum:
    """AND: false if one is false, else NULL if one is NULL."""
    return reduce(pc.and_kleene, conditions)


def disjunction(*conditions: Datum) -> Datum:
    """OR: true if one is true, else NULL if one is NULL."""
    return reduce(pc.or_kleene, conditions)


AND = Kernel("and", conjunction)
OR = Kernel("or", disjunction)
NOT = Kernel("not", pc.invert)
IS_NULL = Kernel("is null", pc.is_null)
COALESCE = Kernel("coalesce", pc.coalesce)
IS_TRUE = Kernel("is true", lambda x: pc.coalesce(x, _FALSE))
IS_NAN = Kernel("isnan", lambda x: pc.coalesce(pc.is_nan(x), _FALSE))
#: Condition, value if true, value if not.
IF = Kernel("if", lambda when, then, other: pc.if_else(pc.coalesce(when, _FALSE), then, other))


def _float_equal(x: Datum, y: Datum) -> Datum:
    return pc.or_kleene(pc.equal(x, y), pc.and_kleene(pc.is_nan(x), pc.is_nan(y)))


def _float_less(x: Datum, y: Datum) -> Datum:
    return pc.or_kleene(pc.less(x, y), pc.and_kleene(pc.invert(pc.is_nan(x)), pc.is_nan(y)))


def _null_safe(equal: Callable[[Datum, Datum], Datum]) -> Callable[[Datum, Datum], Datum]:
    return lambda x, y: pc.coalesce(equal(x, y), pc.and_kleene(pc.is_null(x), pc.is_null(y)))


_COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<=>": _null_safe(pc.equal),
}
_FLOAT_COMPARISONS: dict[str, Callable[[Datum, Datum], Datum]] = {
    "=": _float_equal,
    "<>": lambda x, y: pc.invert(_float_equal(x, y)),
    "<": _float_less,
    "<=": lambda x, y: pc.invert(_float_less(y, x)),
    ">": lambda x, y: _float_less(y, x),
    ">=": lambda x, y: pc.invert(_float_less(x, y)),
    "<=>": _null_safe(_float_equal),
}


def comparison(operator: str, type_: pa.DataType) -> Kernel:
    """Return the kernel that compares two values of one type."""
    if pt.is_floating(type_):
        return Kernel(operator, _FLOAT_COMPARISONS[operator])
    return Kernel(operator, _COMPARISONS[operator])


@dataclass(frozen=True)
class Values:
    """The sorted values of an IN, for checks against statistics."""

    sorted: tuple[Any, ...]

    def any_between(self, low: Any, high: Any) -> bool:
        """Return whether one of the values is in a closed range."""
        at = bisect_left(self.sorted, low)
        return at < len(self.sorted) and bool(self.sorted[at] <= high)


def membership(values: pa.Array) -> Kernel:
    """Return the kernel of IN for *values*; NULL if only a NULL among them could be equal."""
    known = values.drop_null()
    floating = pt.is_floating(values.type)
    if floating:
        known = _without_sign_of_zero(known)

    def is_in(x: Datum) -> Datum:
        found = pc.is_in(_without_sign_of_zero(x) if floating else x, known)
        if values.null_count:
            found = null_unless(found, found)
        return null_unless(pc.is_valid(x), found)

    floor = {python_value(value) for value in known}
    ceiling = {python_value(value, up=True) for value in known}
    exact = None not in floor and floor == ceiling
    return Kernel("in", is_in, detail=Values(tuple(sorted(floor))) if exact else None)


def _without_sign_of_zero(x: Datum) -> Datum:
    # is_in distinguishes -0.0 from 0.0.
    return pc.add(x, pa.scalar(0.0, pa.float64()))
