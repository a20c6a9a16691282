"""Translate sqlglot's syntax tree to typed nodes, by a whitelist.

A form or a part of it that `grammar` does not list is refused, with its name and position. So a
selector can read only the columns of its queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from queue_core.errors import BadSelector
from queue_core.selector.functions import FUNCTIONS
from queue_core.selector.nodes import Column, Node, Unfit
from queue_core.selector.syntax import SourceText
from queue_core.values.names import nearest

#: The deepest nesting of expressions; lists of AND and OR do not count.
_DEEPEST = 64
#: Attributes of sqlglot's functions that do not affect their meaning here.
_IRRELEVANT = {"coalesce", "ignore_nulls", "is_null", "is_nvl", "safe"}

#: Translates a part of the tree to a node.
Handler: TypeAlias = "Callable[[Translator, exp.Expression], Node]"


class Translator:
    """Translates the trees of one text, and points into it at their faults."""

    def __init__(
        self,
        source: SourceText,
        schema: pa.Schema,
        grammar: dict[type[exp.Expression], tuple[Handler, tuple[str, ...]]],
    ) -> None:
        self._source = source
        self._schema = schema
        self._grammar = grammar
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
        handler, parts = self._grammar.get(type(tree), (None, ()))
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
