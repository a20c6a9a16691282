"""The functions that a selector can call, by name. There are no others.

Each turns nodes into a node, or raises `Unfit`. Hours, days and years are in UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from queue_core.selector import arithmetic
from queue_core.selector.casts import align, explicit
from queue_core.selector.kernels import COALESCE, IF, IS_NAN, IS_NULL, NOT, comparison, disjunction
from queue_core.selector.nodes import Datum, Kernel, Literal, Node, Unfit, call, is_null
from queue_core.selector.types import MOMENT


@dataclass(frozen=True)
class Function:
    """A function, with the least and the greatest number of its arguments."""

    build: Callable[..., Node]
    least: int = 1
    most: int | None = 1


@dataclass(frozen=True)
class Prefix:
    """The prefix of all texts that meet a condition; *whole*: every text with the prefix does."""

    text: str
    whole: bool


def choose(condition: Node, then: Node, other: Node) -> Node:
    """Return *then* where the condition is true, and *other* elsewhere."""
    then, other = align([then, other])
    return call(IF, truth(condition), then, other)


def truth(condition: Node) -> Node:
    """Return the node if it is a condition; NULL is one. Raises `Unfit`."""
    if is_null(condition):
        return Literal(pa.scalar(None, pa.bool_()))
    if not pt.is_boolean(condition.type):
        raise Unfit(
            f"a condition is needed here, not {condition.type}; compare it with something",
            condition,
        )
    return condition


def compare(operator: str, x: Node, y: Node) -> Node:
    """Compare two nodes with ``= <> < <= > >= <=>``."""
    x, y = align([x, y])
    if operator != "<=>" and (is_null(x) or is_null(y)):
        return Literal(pa.scalar(None, pa.bool_()))
    return truth(call(comparison(operator, x.type), x, y))


def like(x: Node, pattern: Node, *, ignore_case: bool = False, escape: str = "\\") -> Node:
    """LIKE: ``%`` stands for any text, ``_`` for one character."""
    text = _constant(pattern, "LIKE")
    if text is None:
        return Literal(pa.scalar(None, pa.bool_()))
    pieces = _pieces(text, escape, pattern)
    arrow_pattern = "".join(f"\\{c}" if literal and c in "%_\\" else c for literal, c in pieces)
    first_wild = next((at for at, (literal, _) in enumerate(pieces) if not literal), len(pieces))
    prefix = Prefix(
        "".join(c for _, c in pieces[:first_wild]),
        whole=[c for _, c in pieces[first_wild:]] == ["%"],
    )
    match = partial(pc.match_like, pattern=arrow_pattern, ignore_case=ignore_case)
    detail = None if ignore_case else prefix
    return call(Kernel("like", match, detail=detail), _text("LIKE", x))


def matches(x: Node, pattern: Node) -> Node:
    """RLIKE: whether a regular expression (RE2) matches a part of the text."""
    regex = _constant(pattern, "RLIKE")
    if regex is None:
        return Literal(pa.scalar(None, pa.bool_()))
    match = partial(pc.match_substring_regex, pattern=regex)
    try:
        match(pa.array([""]))
    except pa.ArrowInvalid as error:
        raise Unfit(str(error), pattern) from error
    return call(Kernel("rlike", match), _text("RLIKE", x))


def concatenate(*texts: Node) -> Node:
    """Concatenate texts; NULL if one is NULL."""
    parts = [explicit(text, pa.string()) for text in texts]
    join = Kernel("concat", lambda *values: pc.binary_join_element_wise(*values, pa.scalar("")))
    return call(join, *parts)


def _pieces(text: str, escape: str, pattern: Node) -> list[tuple[bool, str]]:
    """Return the characters of a LIKE pattern, and whether each is literal."""
    pieces: list[tuple[bool, str]] = []
    characters = iter(text)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise Unfit(f"the pattern ends with its escape character, {escape}", pattern)
            pieces.append((True, following))
        else:
            pieces.append((character not in "%_", character))
    return pieces


def _text(name: str, x: Node) -> Node:
    if is_null(x):
        return Literal(pa.scalar(None, pa.string()))
    if not pt.is_string(x.type):
        raise Unfit(f"{name} takes a text, not {x.type}; CAST it to STRING", x)
    return x


def _constant(node: Node, name: str) -> str | None:
    """Return the text of a constant, or None for NULL."""
    node = _text(name, node)
    if not isinstance(node, Literal):
        raise Unfit(f"{name} takes a constant text here, not a column", node)
    value: str | None = node.value.as_py()
    return value


def _integer(node: Node, name: str) -> int:
    if not isinstance(node, Literal) or not pt.is_integer(node.type) or not node.value.is_valid:
        raise Unfit(f"{name} takes a constant whole number here", node)
    return int(node.value.as_py())


def _of_text(name: str, function: Callable[[Datum], Datum]) -> Function:
    return Function(lambda x: call(Kernel(name, function), _text(name, x)))


def _of_text_and_constant(name: str, function: Callable[..., Datum]) -> Function:
    def build(x: Node, constant: Node) -> Node:
        text = _constant(constant, name)
        if text is None:
            return Literal(pa.scalar(None, pa.bool_()))
        detail = Prefix(text, whole=True) if name == "startswith" else None
        kernel = "like" if detail else name
        return call(Kernel(kernel, partial(function, pattern=text), detail=detail), _text(name, x))

    return Function(build, 2, 2)


def _trim(name: str, function: Callable[..., Datum]) -> Function:
    def build(x: Node, characters: Node | None = None) -> Node:
        cut = " " if characters is None else _constant(characters, name)
        if cut is None:
            return Literal(pa.scalar(None, pa.string()))
        return call(Kernel(name, partial(function, characters=cut)), _text(name, x))

    return Function(build, 1, 2)


def _length(x: Node) -> Node:
    if pt.is_binary(x.type):
        return call(Kernel("length", pc.binary_length), x)
    return call(Kernel("length", pc.utf8_length), _text("length", x))


def _substring(x: Node, start: Node, length: Node | None = None) -> Node:
    """SUBSTRING: counts from 1, and from the end with a negative start."""
    first = _bounded(_integer(start, "substring"))
    begin = first - 1 if first > 0 else first
    end = None
    if length is not None:
        end = begin + _bounded(max(_integer(length, "substring"), 0))
        if begin < 0 <= end:  # up to the end, or beyond
            end = None
    slice_ = partial(pc.utf8_slice_codeunits, start=begin, stop=end)
    return call(Kernel("substring", slice_), _text("substring", x))


def _bounded(number: int) -> int:
    return max(-(2**31), min(number, 2**31))


def _round(x: Node, places: Node | None = None) -> Node:
    return arithmetic.rounded(x, 0 if places is None else _integer(places, "round"))


def _field(name: str, function: Callable[[Datum], Datum], *, monotone: bool = False) -> Function:
    def build(x: Node) -> Node:
        moment = x if pt.is_timestamp(x.type) else explicit(x, MOMENT)
        return call(Kernel(name, function, monotone=monotone), moment)

    return Function(build)


def _extreme(name: str, function: Callable[..., Datum]) -> Function:
    def apply(*values: Datum) -> Datum:
        return function(*values, skip_nulls=True)

    def apply_to_doubles(*values: Datum) -> Datum:
        # Arrow ignores NaN, which is greater than every number.
        nan = disjunction(*map(IS_NAN.apply, values))
        return pc.if_else(nan, pa.scalar(float("nan")), apply(*values))

    def build(*nodes: Node) -> Node:
        nodes = tuple(align(nodes))
        with_nan = pt.is_floating(nodes[0].type) and name == "greatest"
        return call(Kernel(name, apply_to_doubles if with_nan else apply), *nodes)

    return Function(build, 2, None)


def _is_nan(x: Node) -> Node:
    if not pt.is_floating(x.type):
        raise Unfit(f"isnan takes a double, not {x.type}", x)
    return call(IS_NAN, x)


#: By name in capitals, without underscores.
FUNCTIONS = {
    "ABS": Function(arithmetic.absolute),
    "CEIL": Function(partial(arithmetic.towards, "ceil", pc.ceil)),
    "COALESCE": Function(lambda *nodes: call(COALESCE, *align(nodes)), 1, None),
    "CONCAT": Function(concatenate, 1, None),
    "CONTAINS": _of_text_and_constant("contains", pc.match_substring),
    "DAY": _field("day", pc.day),
    "DAYOFMONTH": _field("day", pc.day),
    "ENDSWITH": _of_text_and_constant("endswith", pc.ends_with),
    "FLOOR": Function(partial(arithmetic.towards, "floor", pc.floor)),
    "GREATEST": _extreme("greatest", pc.max_element_wise),
    "HOUR": _field("hour", pc.hour),
    "ISNAN": Function(_is_nan),
    "ISNOTNULL": Function(lambda x: call(NOT, call(IS_NULL, x))),
    "ISNULL": Function(lambda x: call(IS_NULL, x)),
    "LEAST": _extreme("least", pc.min_element_wise),
    "LENGTH": Function(_length),
    "LOWER": _of_text("lower", pc.utf8_lower),
    "LTRIM": _trim("ltrim", pc.utf8_ltrim),
    "MINUTE": _field("minute", pc.minute),
    "MONTH": _field("month", pc.month),
    "NULLIF": Function(lambda x, y: choose(compare("=", x, y), Literal(pa.scalar(None)), x), 2, 2),
    "ROUND": Function(_round, 1, 2),
    "RTRIM": _trim("rtrim", pc.utf8_rtrim),
    "SECOND": _field("second", pc.second),
    "STARTSWITH": _of_text_and_constant("startswith", pc.starts_with),
    "SUBSTRING": Function(_substring, 2, 3),
    "TODATE": Function(lambda x: explicit(x, pa.date32())),
    "TRIM": _trim("trim", pc.utf8_trim),
    "UPPER": _of_text("upper", pc.utf8_upper),
    "YEAR": _field("year", pc.year, monotone=True),
}
