"""The grammar of selectors and orders: each supported form of SQL, and its translation.

Functions are in `functions`. Each form is listed with its permitted parts; a form with any other
part (a unit, a format) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from queue_core.selector import arithmetic
from queue_core.selector.casts import align, explicit
from queue_core.selector.functions import (
    FUNCTIONS,
    choose,
    compare,
    concatenate,
    like,
    matches,
    truth,
)
from queue_core.selector.kernels import AND, IS_NULL, IS_TRUE, NOT, OR, membership
from queue_core.selector.literals import number
from queue_core.selector.nodes import Kernel, Literal, Node, Unfit, call
from queue_core.selector.syntax import SourceText
from queue_core.selector.translate import Handler, Translator
from queue_core.selector.types import MOMENT, decimal, is_ordered

_NULL = Literal(pa.scalar(None))
_TYPES = {
    "BIGINT": pa.int64(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "INT": pa.int32(),
    "SMALLINT": pa.int16(),
    "TEXT": pa.string(),
    "TIMESTAMP": MOMENT,
    "TIMESTAMPLTZ": MOMENT,
    "TIMESTAMPNTZ": MOMENT,
    "TIMESTAMPTZ": MOMENT,
    "TINYINT": pa.int8(),
}


def understand(
    tree: exp.Expression, source: SourceText, schema: pa.Schema
) -> tuple[Node, frozenset[str]]:
    """Return the typed tree of a text, and the columns that it names; raises `BadSelector`."""
    translator = Translator(source, schema, _GRAMMAR)
    return translator.node(tree), frozenset(translator.named)


def _of_both_sides(build: Callable[[Node, Node], Node]) -> Handler:
    return lambda to, tree: build(to.node(tree.this), to.node(tree.expression))


def _compare(operator: str) -> Handler:
    return _of_both_sides(partial(compare, operator))


def _calculate(operator: str) -> Handler:
    return _of_both_sides(partial(arithmetic.combine, operator))


def _connect(kernel: Kernel) -> Handler:
    return lambda to, tree: call(kernel, *[truth(to.node(part)) for part in _operands(tree)])


def _operands(tree: exp.Expression) -> Iterator[exp.Expression]:
    """Flatten ``a AND b AND c``, which sqlglot nests to the left."""
    later = []
    while True:
        later.append(tree.expression)
        if type(tree.this) is not type(tree):
            break
        tree = tree.this
    yield tree.this
    yield from reversed(later)


def _in(to: Translator, tree: exp.Expression) -> Node:
    if not tree.expressions:
        raise Unfit("IN needs at least one value")
    x, *values = align([to.node(part) for part in (tree.this, *tree.expressions)])
    if not is_ordered(x.type):
        raise Unfit(f"values of {x.type} cannot be compared")
    constants = []
    for value in values:
        if not isinstance(value, Literal):
            raise Unfit("IN takes constant values; use = and OR for columns", value)
        constants.append(value.value)
    return truth(call(membership(pa.array(constants, x.type)), x))


def _between(to: Translator, tree: exp.Expression) -> Node:
    x = to.node(tree.this)
    low, high = to.node(tree.args["low"]), to.node(tree.args["high"])
    return call(AND, compare(">=", x, low), compare("<=", x, high))


def _is(to: Translator, tree: exp.Expression) -> Node:
    if isinstance(tree.expression, exp.Null):
        return call(IS_NULL, to.node(tree.this))
    if not isinstance(tree.expression, exp.Boolean):
        raise Unfit("IS takes NULL, TRUE or FALSE, and NOT before them")
    condition = truth(to.node(tree.this))
    return call(IS_TRUE, condition if tree.expression.this else call(NOT, condition))


def _like(to: Translator, tree: exp.Expression, escape: str = "\\") -> Node:
    node = like(
        to.node(tree.this),
        to.node(tree.expression),
        ignore_case=isinstance(tree, exp.ILike),
        escape=escape,
    )
    return call(NOT, node) if tree.args.get("negate") else node


def _escape(to: Translator, tree: exp.Expression) -> Node:
    like_tree, escape = tree.this, tree.expression
    if not isinstance(like_tree, exp.Like | exp.ILike) or len(escape.name) != 1:
        raise Unfit("ESCAPE takes one character, after LIKE")
    to.refuse_parts_beyond(like_tree, _LIKE[1])
    return _like(to, like_tree, escape.name)


def _negative(to: Translator, tree: exp.Expression) -> Node:
    if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        return number(f"-{tree.this.name}")  # so that the least of all whole numbers is one
    return arithmetic.negate(to.node(tree.this))


def _if(to: Translator, tree: exp.Expression) -> Node:
    other = tree.args.get("false")
    then = to.node(tree.args["true"])
    return choose(to.node(tree.this), then, to.node(other) if other else _NULL)


def _case(to: Translator, tree: exp.Expression) -> Node:
    subject = to.node(tree.this) if tree.this else None
    default = tree.args.get("default")
    result = to.node(default) if default else _NULL
    for branch in reversed(tree.args["ifs"]):
        when = to.node(branch.this)
        if subject is not None:
            when = compare("=", subject, when)
        result = choose(when, to.node(branch.args["true"]), result)
    return result


def _trim(to: Translator, tree: exp.Expression) -> Node:
    sides = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}
    parts = [part for part in (tree.this, tree.expression) if part]
    name = sides.get(str(tree.args.get("position")).upper(), "TRIM")
    return FUNCTIONS[name].build(*[to.node(part) for part in parts])


def _cast(to: Translator, tree: exp.Expression) -> Node:
    return explicit(to.node(tree.this), _type_of(tree.args["to"]))


def _type_of(tree: exp.DataType) -> pa.DataType:
    name = str(getattr(tree.this, "name", tree.this))
    parameters = [int(part.name) for part in tree.expressions if part.name.isdigit()]
    if name == "DECIMAL":
        precision, scale = [*parameters, 10, 0][:2] if not parameters[1:] else parameters[:2]
        if not 1 <= precision <= 38 or scale > precision:
            raise Unfit(f"there is no DECIMAL({precision}, {scale}); 38 digits are possible")
        return decimal(precision, scale)
    if name not in _TYPES or tree.expressions:
        raise Unfit(f"there is no CAST to {tree.sql('spark')}")
    return _TYPES[name]


def _literal(to: Translator, tree: exp.Expression) -> Node:
    return Literal(pa.scalar(tree.name)) if tree.is_string else number(tree.name)


def _hex(to: Translator, tree: exp.Expression) -> Node:
    try:
        return Literal(pa.scalar(bytes.fromhex(tree.name)))
    except ValueError as error:
        raise Unfit(f"X'{tree.name}' does not have two digits for each byte") from error


_SIDES = ("this", "expression")
_CAST = (_cast, ("this", "to", "_type"))
_LIKE = (_like, (*_SIDES, "negate"))
#: The supported forms, with their translations and their permitted parts.
_GRAMMAR: dict[Any, tuple[Handler, tuple[str, ...]]] = {
    exp.Add: (_calculate("+"), _SIDES),
    exp.And: (_connect(AND), _SIDES),
    exp.Between: (_between, ("this", "low", "high")),
    exp.Boolean: (lambda to, tree: Literal(pa.scalar(bool(tree.this))), ("this",)),
    exp.Case: (_case, ("this", "ifs", "default")),
    exp.Cast: _CAST,
    exp.Column: (Translator.column, ("catalog", "db", "table", "this")),
    exp.Div: (_calculate("/"), (*_SIDES, "typed")),
    exp.Dot: (Translator.column, _SIDES),
    exp.DPipe: (_of_both_sides(concatenate), _SIDES),
    exp.EQ: (_compare("="), _SIDES),
    exp.Escape: (_escape, _SIDES),
    exp.GT: (_compare(">"), _SIDES),
    exp.GTE: (_compare(">="), _SIDES),
    exp.HexString: (_hex, ("this",)),
    exp.If: (_if, ("this", "true", "false")),
    exp.ILike: _LIKE,
    exp.In: (_in, ("this", "expressions")),
    exp.IntDiv: (_calculate("DIV"), _SIDES),
    exp.Is: (_is, _SIDES),
    exp.LT: (_compare("<"), _SIDES),
    exp.LTE: (_compare("<="), _SIDES),
    exp.Like: _LIKE,
    exp.Literal: (_literal, ("this", "is_string")),
    exp.Mod: (_calculate("%"), _SIDES),
    exp.Mul: (_calculate("*"), _SIDES),
    exp.NEQ: (_compare("<>"), _SIDES),
    exp.Neg: (_negative, ("this",)),
    exp.Not: (lambda to, tree: call(NOT, truth(to.node(tree.this))), ("this",)),
    exp.Null: (lambda to, tree: _NULL, ()),
    exp.NullSafeEQ: (_compare("<=>"), _SIDES),
    exp.NullSafeNEQ: (lambda to, tree: call(NOT, _compare("<=>")(to, tree)), _SIDES),
    exp.Or: (_connect(OR), _SIDES),
    exp.Paren: (lambda to, tree: to.node(tree.this), ("this",)),
    exp.RawString: (lambda to, tree: Literal(pa.scalar(tree.name)), ("this",)),
    exp.RegexpLike: (_of_both_sides(matches), _SIDES),
    exp.Sub: (_calculate("-"), _SIDES),
    exp.TryCast: _CAST,
    exp.TsOrDsToDate: (lambda to, tree: explicit(to.node(tree.this), pa.date32()), ("this",)),
    exp.Trim: (_trim, ("this", "expression", "position")),
}
