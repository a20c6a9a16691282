"""Arithmetic: whole numbers in 64 bits, decimals exactly, everything else in doubles.

An operation without a result is NULL: a division by zero, an overflow of 64 bits. Quotients, and
decimals with more digits than Arrow has, are doubles.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from queue_core.selector.casts import convert
from queue_core.selector.kernels import null_unless
from queue_core.selector.nodes import Datum, Kernel, Literal, Node, Unfit, call, is_null
from queue_core.selector.types import decimal, digits
from queue_core.values.arrow_types import is_number

_ZERO, _ONE, _MINUS_ONE = (pa.scalar(value, pa.int64()) for value in (0, 1, -1))
_LEAST = pa.scalar(-(2**63), pa.int64())
#: Doubles from this value on have no fraction.
_NO_FRACTION = pa.scalar(2.0**52)
_ROUNDING = "half_towards_infinity"  # away from zero, as SQL rounds


def combine(operator: str, x: Node, y: Node) -> Node:
    """Apply ``+ - * / % DIV`` to two nodes; raises `Unfit`."""
    x, y = _numeric(operator, x), _numeric(operator, y)
    if operator == "/":
        # With a constant divisor, the quotient only rises or only falls.
        kernel = Kernel("/", _divide, monotone=isinstance(y, Literal))
        return call(kernel, convert(x, pa.float64()), convert(y, pa.float64()))
    whole = all(pt.is_integer(node.type) for node in (x, y))
    if operator == "DIV" and not whole:
        raise Unfit("DIV takes whole numbers; use / or CAST")
    if whole:
        return _whole(operator, x, y)
    if operator == "%" or any(pt.is_floating(node.type) for node in (x, y)):
        kernel = Kernel("%", _remainder) if operator == "%" else _PLAIN[operator]
        return call(kernel, convert(x, pa.float64()), convert(y, pa.float64()))
    return _exact(operator, x, y)


def negate(x: Node) -> Node:
    """Negate a number."""
    x = _wide(_numeric("-", x))
    if pt.is_integer(x.type):
        return call(Kernel("-", lambda v: pc.negate(_no_least(v)), monotone=True), x)
    return call(Kernel("-", pc.negate, monotone=True), x)


def absolute(x: Node) -> Node:
    """Return the absolute value of a number."""
    x = _wide(_numeric("abs", x))
    if pt.is_integer(x.type):
        return call(Kernel("abs", lambda v: pc.abs(_no_least(v))), x)
    return call(Kernel("abs", pc.abs), x)


def rounded(x: Node, places: int = 0) -> Node:
    """Round half away from zero to *places* digits after the point, or before it if negative."""
    if not -18 <= places <= 38:
        raise Unfit(f"round takes -18 to 38 places, not {places}")
    x = _numeric("round", x)
    if pt.is_floating(x.type):
        # Not monotone: Arrow keeps values that become whole by scaling, and rescales the others.
        kernel = Kernel("round", lambda v: _round_double(v, places))
        return call(kernel, convert(x, pa.float64()))
    whole, scale = digits(x.type)
    if places >= scale:
        return x
    return call(
        Kernel("round", lambda v: pc.round(v, places, round_mode=_ROUNDING), monotone=True),
        convert(x, decimal(max(whole + 1, 20) + scale, scale)),
    )


def towards(name: str, function: Callable[[Datum], Datum], x: Node) -> Node:
    """Round to a whole number with *function*, floor or ceil."""
    x = _numeric(name, x)
    if pt.is_integer(x.type):
        return x
    if pt.is_decimal(x.type):
        whole, scale = digits(x.type)
        x = convert(x, decimal(whole + 1 + scale, scale))
    return call(Kernel(name, function, monotone=True), x)


def _numeric(operator: str, x: Node) -> Node:
    if is_null(x):
        return Literal(pa.scalar(None, pa.int32()))
    if not is_number(x.type):
        raise Unfit(f"{operator} takes numbers, not {x.type}; CAST it to one", x)
    return x


def _wide(x: Node) -> Node:
    return convert(x, pa.int64()) if pt.is_integer(x.type) else x


def _whole(operator: str, x: Node, y: Node) -> Node:
    # Two 32-bit numbers cannot leave 64 bits.
    narrow = all(node.type.bit_width <= 32 for node in (x, y)) and operator in _PLAIN
    kernel = (_PLAIN if narrow else _CHECKED)[operator]
    return call(kernel, convert(x, pa.int64()), convert(y, pa.int64()))


def _exact(operator: str, x: Node, y: Node) -> Node:
    """Compute with decimals and whole numbers in a type that holds every result."""
    (whole, scale), (other_whole, other_scale) = digits(x.type), digits(y.type)
    if operator == "*":
        precision = whole + scale + other_whole + other_scale + 1
    else:
        precision = max(whole, other_whole) + max(scale, other_scale) + 1
    wide = decimal(precision, 0)
    if pt.is_floating(wide):
        return call(_PLAIN[operator], convert(x, wide), convert(y, wide))
    # Both operands get the width of the result, each in its own scale: Arrow does not widen 256
    # bits.
    make = pa.decimal128 if pt.is_decimal128(wide) else pa.decimal256
    return call(
        _PLAIN[operator],
        convert(x, make(whole + scale, scale)),
        convert(y, make(other_whole + other_scale, other_scale)),
    )


def _no_least(x: Datum) -> Datum:
    """Replace the least whole number, whose negation overflows, by NULL."""
    return null_unless(pc.not_equal(x, _LEAST), x)


def _no_zero(x: Datum) -> Datum:
    return null_unless(pc.not_equal(x, _ZERO), x)


def _no_negative(signs: Datum, x: Datum) -> Datum:
    """Return NULL where *signs* is negative."""
    return null_unless(pc.greater_equal(signs, _ZERO), x)


def _add(x: Datum, y: Datum) -> Datum:
    total = pc.add(x, y)  # when it wraps, its sign differs from both signs
    return _no_negative(
        pc.bit_wise_and(pc.bit_wise_xor(x, total), pc.bit_wise_xor(y, total)), total
    )


def _subtract(x: Datum, y: Datum) -> Datum:
    rest = pc.subtract(x, y)
    return _no_negative(pc.bit_wise_and(pc.bit_wise_xor(x, y), pc.bit_wise_xor(x, rest)), rest)


def _multiply(x: Datum, y: Datum) -> Datum:
    product = pc.multiply(x, y)  # when it wraps, dividing does not lead back
    zero, minus_one = pc.equal(x, _ZERO), pc.equal(x, _MINUS_ONE)
    divisor = pc.if_else(pc.or_kleene(zero, minus_one), _ONE, x)
    returns = pc.equal(pc.divide(product, divisor), y)
    fits = pc.if_else(minus_one, pc.not_equal(y, _LEAST), pc.or_kleene(zero, returns))
    return null_unless(fits, product)


def _divide(x: Datum, y: Datum) -> Datum:
    return pc.divide(x, _no_zero(y))


def _quotient(x: Datum, y: Datum) -> Datum:
    fits = pc.or_kleene(pc.not_equal(x, _LEAST), pc.not_equal(y, _MINUS_ONE))
    return null_unless(fits, pc.divide(x, _no_zero(y)))


def _whole_remainder(x: Datum, y: Datum) -> Datum:
    divisor = _no_zero(pc.if_else(pc.equal(y, _MINUS_ONE), _ONE, y))
    return pc.subtract(x, pc.multiply(pc.divide(x, divisor), divisor))


def _remainder(x: Datum, y: Datum) -> Datum:
    divisor = _no_zero(y)
    rest = pc.subtract(x, pc.multiply(pc.trunc(pc.divide(x, divisor)), divisor))
    return pc.if_else(pc.less(pc.abs(x), pc.abs(divisor)), x, rest)


def _round_double(x: Datum, places: int) -> Datum:
    if places < 0:
        return pc.round(x, places, round_mode=_ROUNDING)
    # Values without a fraction stay as they are, so that no intermediate value overflows.
    small = pc.less(pc.abs(x), _NO_FRACTION)
    fraction = pc.if_else(small, x, pa.scalar(0.0))
    return pc.if_else(small, pc.round(fraction, places, round_mode=_ROUNDING), x)


_PLAIN = {
    "+": Kernel("+", pc.add, monotone=True),
    "-": Kernel("-", pc.subtract, monotone=True),
    "*": Kernel("*", pc.multiply, monotone=True),
}
_CHECKED = {
    "+": Kernel("+", _add, monotone=True),
    "-": Kernel("-", _subtract, monotone=True),
    "*": Kernel("*", _multiply, monotone=True),
    "%": Kernel("%", _whole_remainder),
    "DIV": Kernel("DIV", _quotient),
}
