"""The grammar of selectors and orders: each supported form of SQL, and its translation.

sqlglot's syntax tree becomes typed nodes by a whitelist. Functions are in `functions`. Each form is
listed with its permitted parts; another form, or one with any other part (a unit, a format), is
refused with its name and position. So a selector can read only the columns of its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from queue_core.errors import BadSelector
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
from queue_core.selector.nodes import Column, Kernel, Literal, Node, Unfit, call
from queue_core.selector.syntax import SourceText
from queue_core.selector.types import MOMENT, decimal, is_ordered
from queue_core.values.names import nearest

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
#: The deepest nesting of expressions; lists of AND and OR do not count.
_DEEPEST = 64
#: Attributes of sqlglot's functions that do not affect their meaning here.
_IRRELEVANT = {"coalesce", "ignore_nulls", "is_null", "is_nvl", "safe"}

#: Translates a part of the tree to a node.
Handler: TypeAlias = "Callable[[Translator, exp.Expression], Node]"


def understand(
    tree: exp.Expression, source: SourceText, schema: pa.Schema
) -> tuple[Node, frozenset[str]]:
    """Return the typed tree of a text, and the columns that it names; raises `BadSelector`."""
    translator = Translator(source, schema)
    return translator.node(tree), frozenset(translator.named)


class Translator:
    """Translates the trees of one text, and points into it at their faults."""

    def __init__(self, source: SourceText, schema: pa.Schema) -> None:
        self._source = source
        self._schema = schema
        self._depth = 0
        #: The columns that the text names; the node can need fewer, as for ``n = NULL``.
        self.named: set[str] = set()
        #: The origin of each node, by its id; holds the node, so that the id stays unique.
        self._origins: dict[int, tuple[Node, exp.Expression]] = {}

    def node(self, tree: exp.Expression | None) -> Node:
        """Translate a part of the tree; raises `BadSelector`, or `Unfit` if it is missing."""
        if tree is None:
            raise Unfit("something is missing here")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.fault(tree, f"it is nested too deeply; {_DEEPEST} levels are possible")
        try:
            node = self._translated(tree)
        except Unfit as error:
            _, culprit = self._origins.get(id(error.node), (None, tree))
            raise self.fault(culprit, str(error)) from error
        self._depth -= 1
        self._origins.setdefault(id(node), (node, tree))
        return node

    def column(self, tree: exp.Expression) -> Node:
        """Return a column by its name, or a field of a struct by its path."""
        names = list(_path(tree))
        if not names:
            raise self.fault(tree, f"{_describe(tree)} is not allowed")
        fields, path = list(self._schema), list[str]()
        field: pa.Field = None
        for identifier in names:
            field = _named(identifier.name, fields)
            if field is None:
                what = f"{'.'.join(path)} has no field" if path else "there is no column"
                known = [field.name for field in fields]
                hint = nearest(identifier.name, known)
                if not hint and known:
                    hint = f". There are {', '.join(known)}"
                raise self.fault(identifier, f"{what} {identifier.name!r}{hint}")
            path.append(field.name)
            fields = list(field.type) if pt.is_struct(field.type) else []
        self.named.add(path[0])
        return Column(tuple(path), field.type)

    def fault(self, tree: exp.Expression, message: str) -> BadSelector:
        """Return an error that points at a part of the tree."""
        return self._source.fault(message, *self._source.span_of(tree))

    def _translated(self, tree: exp.Expression) -> Node:
        handler, parts = _GRAMMAR.get(type(tree), (None, ()))
        if handler is not None:
            self.refuse_parts_beyond(tree, parts)
            return handler(self, tree)
        name = _function_name(tree)
        function = FUNCTIONS.get(name)
        if function is None:
            known = [known.lower() for known in FUNCTIONS]
            hint = nearest(name, known) if isinstance(tree, exp.Anonymous) else ""
            raise self.fault(tree, f"{_describe(tree)} is not allowed{hint}")
        args = self._arguments(tree)
        if len(args) < function.least or (function.most and len(args) > function.most):
            raise self.fault(tree, f"{name.lower()} does not take {len(args)} arguments")
        return function.build(*[self.node(arg) for arg in args])

    def _arguments(self, tree: exp.Expression) -> list[exp.Expression]:
        """Return the arguments of a function in the order of the text."""
        names = [name for name in tree.arg_types if name not in _IRRELEVANT]
        if isinstance(tree, exp.Anonymous):
            names.remove("this")
        self.refuse_parts_beyond(tree, (*names, "this"))
        parts = [tree.args[name] for name in names if tree.args.get(name)]
        args = [arg for part in parts for arg in (part if isinstance(part, list) else [part])]
        if not all(isinstance(arg, exp.Expression) for arg in args):
            raise self.fault(tree, f"this form of {_describe(tree)} is not allowed")
        return args

    def refuse_parts_beyond(self, tree: exp.Expression, parts: tuple[str, ...]) -> None:
        """Raise `BadSelector` if a form has a part that is not listed."""
        for name, part in tree.args.items():
            if not part or name in parts or name in _IRRELEVANT:
                continue
            if isinstance(part, exp.Expression):
                raise self.fault(part, f"{_describe(part)} is not allowed here")
            raise self.fault(tree, f"{_describe(tree)} with {name!r} is not allowed")


def _path(tree: exp.Expression) -> list[exp.Identifier]:
    """Return the identifiers of ``a.b.c``, or none for anything else, such as ``a.*``."""
    if isinstance(tree, exp.Dot):
        head = _path(tree.this)
        parts = [*head, tree.expression] if head else []
    elif isinstance(tree, exp.Column):
        parts = [tree.args.get(name) for name in ("catalog", "db", "table", "this")]
    else:
        parts = []
    parts = [part for part in parts if part]
    return parts if all(isinstance(part, exp.Identifier) for part in parts) else []


def _named(name: str, fields: list[pa.Field]) -> pa.Field | None:
    """Return the field of a name, in any case unless there are several."""
    alike = [field for field in fields if field.name.lower() == name.lower()]
    exact = [field for field in alike if field.name == name]
    return (exact or alike or [None])[0] if exact or len(alike) <= 1 else None


def _function_name(tree: exp.Expression) -> str:
    if isinstance(tree, exp.Anonymous):
        return str(tree.this).upper().replace("_", "")
    return tree.sql_name().replace("_", "") if isinstance(tree, exp.Func) else ""


def _describe(tree: exp.Expression) -> str:
    """Describe a part of the tree in a user's terms."""
    if isinstance(tree, exp.Query | exp.Subquery | exp.Exists):
        return "a subquery"
    if isinstance(tree, exp.Window):
        return "a window"
    if isinstance(tree, exp.AggFunc):
        return f"the aggregate {tree.sql_name().lower()}"
    if isinstance(tree, exp.Star) or tree.is_star:
        return "*"
    if isinstance(tree, exp.Placeholder | exp.Parameter):
        return "a parameter"
    if isinstance(tree, exp.Anonymous):
        return f"the function {str(tree.this).lower()}"
    if isinstance(tree, exp.Func):
        return f"the function {tree.sql_name().lower()}"
    return type(tree).__name__.upper()


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
