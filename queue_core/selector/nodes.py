"""The typed tree of a selector or an order: columns, literals, and calls of kernels.

A tree is either evaluated on Arrow arrays, or checked against statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from queue_core.selector.types import read_type

#: An array, a chunked array or a scalar.
Datum: TypeAlias = Any
Node: TypeAlias = "Column | Literal | FunctionCall"


class Unfit(Exception):
    """A value or a type does not fit its use; the message says why, *node* is the culprit."""

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.node = node


@dataclass(frozen=True, eq=False)
class Kernel:
    """A function over data."""

    name: str
    apply: Callable[..., Datum]
    #: Whether, with all other arguments fixed, the result only rises or only falls.
    monotone: bool = False
    #: Details for checks against statistics: the values of an IN, the prefix of a LIKE.
    detail: Any = None


@dataclass(frozen=True, eq=False)
class Column:
    """A column, or a field of a struct column."""

    #: The name of the column, followed by the names of nested fields.
    path: tuple[str, ...]
    #: The type of the value in the data.
    declared: pa.DataType

    @cached_property
    def type(self) -> pa.DataType:
        """The type in which the value is read."""
        return read_type(self.declared)

    @property
    def columns(self) -> frozenset[str]:
        """The top-level column."""
        return frozenset(self.path[:1])

    def read(self, column: Datum) -> Datum:
        """Return the values, from those of the top-level column."""
        if self.path[1:]:
            column = pc.struct_field(column, list(self.path[1:]))
        if self.type.equals(self.declared):
            return column
        if pt.is_timestamp(self.declared):  # remove the zone and keep the moment
            column = cast(column, pa.int64())
        return cast(column, self.type)


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant."""

    value: pa.Scalar
    columns: frozenset[str] = frozenset()

    @property
    def type(self) -> pa.DataType:
        """Type of the value; the type of NULL is null."""
        return self.value.type


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """A kernel applied to nodes."""

    kernel: Kernel
    args: tuple[Node, ...]
    type: pa.DataType

    @cached_property
    def columns(self) -> frozenset[str]:
        """Top-level columns of its arguments."""
        return frozenset[str]().union(*(arg.columns for arg in self.args))


def call(kernel: Kernel, *args: Node) -> Node:
    """
    Return a call with the type that Arrow derives, or its value if all arguments are constant.

    Raises `Unfit` if the kernel does not support the types.
    """
    values = [arg.value if isinstance(arg, Literal) else pa.array([], arg.type) for arg in args]
    try:
        result = kernel.apply(*values)
    except pa.ArrowException as error:
        types = ", ".join(str(arg.type) for arg in args)
        raise Unfit(f"{kernel.name} does not take {types}") from error
    if isinstance(result, pa.Scalar):
        return Literal(result)
    return FunctionCall(kernel, args, result.type)


def is_null(node: Node) -> bool:
    """Return whether a node is the constant NULL, of any type."""
    return isinstance(node, Literal) and not node.value.is_valid


def evaluate(node: Node, column_of: Callable[[Column], Datum]) -> Datum:
    """Return the values of a node; evaluates a node once, even if it is used several times."""
    seen: dict[int, Datum] = {}

    def value(node: Node) -> Datum:
        if isinstance(node, Literal):
            return node.value
        if id(node) not in seen:
            seen[id(node)] = (
                column_of(node)
                if isinstance(node, Column)
                else node.kernel.apply(*[value(arg) for arg in node.args])
            )
        return seen[id(node)]

    return value(node)


def cast(value: Datum, type_: pa.DataType) -> Datum:
    """Cast without checks: values that do not fit were replaced before."""
    return pc.cast(value, type_, safe=False)
