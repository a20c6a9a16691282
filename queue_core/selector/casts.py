"""Convert between types: implicitly without loss, and with CAST where values can be lost.

A CAST of a value that does not fit is NULL. Arrow would raise an error for the whole array, so such
values become NULL before the cast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from queue_core.selector.kernels import conjunction, disjunction, null_unless
from queue_core.selector.literals import read
from queue_core.selector.nodes import Datum, Kernel, Literal, Node, Unfit, call, cast, is_null
from queue_core.selector.types import MOMENT, common_type, digits
from queue_core.values.arrow_types import is_number

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS_PER_DAY = 86_400
_INT64_MAX = 2**63 - 1

#: Holds every 38-digit decimal that CAST can make, with room to round.
_WIDE = pa.decimal256(76, 38)

_DATE = (
    r"(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
    r"|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?"
_MOMENT_TEXT = rf"^{_DATE}(?:[ T]{_TIME})?$"
_DECIMAL_TEXT = r"^[+-]?(?:\d{1,38}(?:\.\d{0,38})?|\.\d{1,38})$"
_FLOAT_TEXT = r"(?i)^(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?inf(?:inity)?|nan)$"
_TRUE = pa.array(["true", "t", "yes", "y", "1"])
_FALSE = pa.array(["false", "f", "no", "n", "0"])
_NULL = Literal(pa.scalar(None))


def align(nodes: Sequence[Node]) -> list[Node]:
    """
    Convert nodes to one type in which they can be compared.

    Text constants take the type of the other nodes. Raises `Unfit` if there is no common type.
    """
    nodes = [_NULL if is_null(node) else node for node in nodes]
    others = [node for node in nodes if not (_is_text_constant(node) or is_null(node))]
    if others and not any(pt.is_string(node.type) for node in others):
        nodes = [_read(node, others[0].type) for node in nodes]
    if all(map(is_null, nodes)):
        return [Literal(pa.scalar(None, pa.int32()))] * len(nodes)
    type_ = common_type(node.type for node in nodes)
    if type_ is None:
        types = dict.fromkeys(str(node.type) for node in nodes)
        raise Unfit(f"{' and '.join(types)} cannot be compared; CAST one of them")
    fits = _whole_number_type(nodes) or type_
    return [convert(node, fits) for node in nodes]


def convert(node: Node, type_: pa.DataType) -> Node:
    """Convert a node to a wider type; only timestamps out of its range become NULL."""
    if node.type.equals(type_):
        return node
    if is_null(node):
        return Literal(pa.scalar(None, type_))
    if pt.is_date(node.type):
        per_day = _PER_SECOND[type_.unit] * _SECONDS_PER_DAY
        return call(_widening(type_, pa.int32(), _INT64_MAX // per_day), node)
    if pt.is_timestamp(node.type):
        factor = _PER_SECOND[type_.unit] // _PER_SECOND[node.type.unit]
        return call(_widening(type_, pa.int64(), _INT64_MAX // factor), node)
    kernel = Kernel("cast", lambda x: cast(x, type_), monotone=_keeps_order(node.type, type_))
    return call(kernel, node)


def explicit(node: Node, type_: pa.DataType) -> Node:
    """CAST: NULL for values that do not fit; raises `Unfit` if the types have no cast."""
    if is_null(node):
        return Literal(pa.scalar(None, type_))
    if not pt.is_string(type_):
        node = _read(node, type_)  # a malformed text constant is a fault
    if pt.is_date(type_) and pt.is_timestamp(node.type) and node.type.unit in ("s", "ms"):
        node = convert(node, MOMENT)  # their last ones are too many days
    source = node.type
    if source.equals(type_):
        return node
    if pt.is_timestamp(type_) and (pt.is_date(source) or pt.is_timestamp(source)):
        return convert(node, type_) if pt.is_date(source) else node
    function = _cast(source, type_)
    if function is None:
        raise Unfit(f"there is no CAST from {source} to {type_}")
    return call(Kernel("cast", function, monotone=_keeps_order(source, type_)), node)


def _keeps_order(source: pa.DataType, target: pa.DataType) -> bool:
    """Not with text; and between decimals and doubles Arrow can be off in the last bit."""
    if pt.is_floating(source) or pt.is_floating(target):
        return not (pt.is_decimal(source) or pt.is_decimal(target) or pt.is_string(source))
    return not (pt.is_string(source) or pt.is_string(target))


def _is_text_constant(node: Node) -> bool:
    return isinstance(node, Literal) and bool(pt.is_string(node.type))


def _read(node: Node, type_: pa.DataType) -> Node:
    return read(node, type_) if isinstance(node, Literal) and _is_text_constant(node) else node


def _whole_number_type(nodes: Sequence[Node]) -> pa.DataType | None:
    """Return the type of the whole-number columns if it holds the constants too."""
    types = {node.type for node in nodes if not isinstance(node, Literal)}
    if len(types) != 1 or not pt.is_integer(type_ := types.pop()):
        return None
    for node in nodes:
        if isinstance(node, Literal) and not is_null(node):
            if not pt.is_integer(node.type):
                return None
            try:
                node.value.cast(type_)
            except pa.ArrowInvalid:
                return None
    return type_


def _between(x: Datum, low: pa.Scalar, high: pa.Scalar) -> Datum:
    return conjunction(pc.greater_equal(x, low), pc.less_equal(x, high))


def _widening(type_: pa.DataType, storage: pa.DataType, limit: int) -> Kernel:
    """Convert days or coarse timestamps to finer ones, with NULL beyond *limit*."""

    def widen(x: Datum) -> Datum:
        low, high = pa.scalar(-limit, pa.int64()), pa.scalar(limit, pa.int64())
        return cast(null_unless(_between(cast(x, storage), low, high), x), type_)

    return Kernel("cast", widen, monotone=True)


def _cast(source: pa.DataType, target: pa.DataType) -> Callable[[Datum], Datum] | None:
    """Return the function of a cast, or None if there is no such cast."""
    if pt.is_string(source):
        return _from_text(target)
    if pt.is_string(target):
        return _to_text(source)
    if pt.is_timestamp(source) or pt.is_date(source):
        return _from_moment(source, target)
    if pt.is_timestamp(target) and pt.is_integer(source):
        return _from_seconds(target)
    if pt.is_boolean(source) and is_number(target):
        return lambda x: cast(cast(x, pa.int8()), target)
    if not is_number(source):
        return None
    if pt.is_boolean(target):
        return lambda x: pc.not_equal(x, pa.scalar(0))
    if pt.is_floating(target):
        return lambda x: cast(x, target)
    if pt.is_integer(target):
        return lambda x: _to_whole(x, source, target)
    return (lambda x: _to_decimal(x, source, target)) if pt.is_decimal(target) else None


def _to_whole(x: Datum, source: pa.DataType, target: pa.DataType) -> Datum:
    """Cut off after the point; NULL beyond the range."""
    bound = 1 << (target.bit_width - 1)
    if pt.is_floating(source):
        x = pc.trunc(cast(x, pa.float64()))
        fits = conjunction(
            pc.greater_equal(x, pa.scalar(float(-bound))), pc.less(x, pa.scalar(float(bound)))
        )
        return cast(null_unless(fits, x), target)
    if pt.is_decimal(source):
        x = pc.trunc(x)
        wide = pa.decimal256(76, source.scale)
        low, high = (pa.scalar(Decimal(value), wide) for value in (-bound, bound - 1))
        return cast(null_unless(_between(cast(x, wide), low, high), x), target)
    low, high = (pa.scalar(value, pa.int64()) for value in (-bound, bound - 1))
    return cast(null_unless(_between(x, low, high), x), target)


def _to_decimal(x: Datum, source: pa.DataType, target: pa.DataType) -> Datum:
    """Round half away from zero; NULL for too many digits before the point."""
    if pt.is_floating(source):
        x = null_unless(pc.less(pc.abs(x), pa.scalar(1e37)), x)
    x = cast(x, _WIDE)
    whole, scale = digits(target)
    half = Decimal(5).scaleb(-scale - 1) if scale < _WIDE.scale else Decimal(0)
    with localcontext(prec=_WIDE.precision):
        bound = pa.scalar(Decimal(10) ** whole - half, _WIDE)
    x = null_unless(pc.less(pc.abs(x), bound), x)
    if half:
        x = pc.round(x, scale, round_mode="half_towards_infinity")
    return cast(x, target)


def _from_text(target: pa.DataType) -> Callable[[Datum], Datum] | None:
    def matching(pattern: str, type_: pa.DataType) -> Callable[[Datum], Datum]:
        def read_text(x: Datum) -> Datum:
            x = pc.utf8_trim_whitespace(x)
            return cast(null_unless(pc.match_substring_regex(x, pattern), x), type_)

        return read_text

    if pt.is_floating(target):
        return matching(_FLOAT_TEXT, target)
    if pt.is_integer(target):
        wide = matching(r"^[+-]?\d{1,38}$", pa.decimal128(38, 0))
        return lambda x: _to_whole(wide(x), pa.decimal128(38, 0), target)
    if pt.is_decimal(target):
        wide = matching(_DECIMAL_TEXT, _WIDE)
        return lambda x: _to_decimal(wide(x), _WIDE, target)
    if pt.is_date(target):
        return matching(f"^{_DATE}$", target)
    if pt.is_timestamp(target):
        return matching(_MOMENT_TEXT, target)
    if pt.is_boolean(target):
        return _truth
    return (lambda x: cast(x, target)) if pt.is_binary(target) else None


def _truth(x: Datum) -> Datum:
    word = pc.utf8_lower(pc.utf8_trim_whitespace(x))
    true = pc.is_in(word, _TRUE)
    return null_unless(disjunction(true, pc.is_in(word, _FALSE)), true)


def _to_text(source: pa.DataType) -> Callable[[Datum], Datum] | None:
    """Only for types that Arrow writes like Spark: not doubles, and not timestamps."""
    plain = pt.is_integer(source) or pt.is_boolean(source) or pt.is_date(source)
    if plain or (pt.is_decimal(source) and source.scale <= 6):
        return lambda x: cast(x, pa.string())
    return None


def _from_moment(source: pa.DataType, target: pa.DataType) -> Callable[[Datum], Datum] | None:
    """Return a cast to a day or to seconds since 1970: rounded down, or as a double."""
    if pt.is_date(target):
        return lambda x: cast(x, target)
    if not pt.is_timestamp(source):
        return None
    per_second = pa.scalar(float(_PER_SECOND[source.unit]))
    if pt.is_float64(target):
        return lambda x: pc.divide(cast(cast(x, pa.int64()), pa.float64()), per_second)
    if pt.is_int64(target):
        return lambda x: cast(cast(pc.floor_temporal(x, unit="second"), pa.timestamp("s")), target)
    return None


def _from_seconds(target: pa.DataType) -> Callable[[Datum], Datum]:
    limit = _INT64_MAX // _PER_SECOND[target.unit]
    low, high = pa.scalar(-limit, pa.int64()), pa.scalar(limit, pa.int64())
    return lambda x: cast(
        cast(cast(null_unless(_between(x, low, high), x), pa.int64()), pa.timestamp("s")), target
    )
