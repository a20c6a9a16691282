"""Expressions that each database compiles in its own way, so that statements can be constants.

`sqlite.py` and `postgresql.py` have the text of each. SQLAlchemy itself leaves ``FOR UPDATE`` out
on SQLite, whose transactions have the whole database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    Boolean,
    ColumnElement,
    Dialect,
    FromClause,
    String,
    Text,
    UnaryExpression,
    bindparam,
    column,
)
from sqlalchemy.sql import operators
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

#: In `given_rows` of `first_of_each`: from which value of the order on to look.
FIRST = "first"


class now(FunctionElement[int]):
    """The time by the database's clock, in microseconds since 1970."""

    type = BigInteger()
    inherit_cache = True
    name = "now"


class not_indexed(FunctionElement[Any]):
    """
    A number in a form that keeps a planner from using an index on it.

    SQLite has no statistics, and those of others may be from a time when the table was empty.
    """

    inherit_cache = True
    name = "not_indexed"

    def __init__(self, of: ColumnElement[Any]) -> None:
        super().__init__(of)
        self.type = of.type


class if_versions(FunctionElement[bool]):
    """A condition that only matters where a row has several versions; elsewhere, it is true."""

    type = Boolean()
    inherit_cache = True
    name = "if_versions"


class each_of(FunctionElement[int]):
    """A table with the column ``value``: the integers of a parameter that is a list."""

    inherit_cache = True
    name = "each_of"

    @classmethod
    def given(cls, name: str) -> FromClause:
        """Return the table for the parameter *name*."""
        values = cls(bindparam(name, type_=NUMBERS))
        # PostgreSQL names the column of such a table as the table.
        return values.table_valued(column("value", BigInteger), name="value")


class _JsonList(String):
    """A list as JSON: SQLite limits the number of parameters, and has no arrays."""

    def bind_processor(self, dialect: Dialect) -> Any:
        """Return what makes JSON of a list."""
        return _as_json


def _as_json(value: Iterable[Any] | None) -> str:
    these = list(value or ())
    # The `repr` of a list of integers is JSON too, and takes a fraction of the time.
    return repr(these) if these and type(these[0]) is int else json.dumps(these)


#: A parameter for any number of integers, or of texts.
NUMBERS = ARRAY(BigInteger).with_variant(_JsonList(), "sqlite")
TEXTS = ARRAY(Text).with_variant(_JsonList(), "sqlite")


class OneOf(ColumnElement[bool]):
    """
    ``column IN values``, with all values in one parameter.

    A subquery of SQLAlchemy's own takes four times as long to build and to look up as a statement
    takes to run.
    """

    __visit_name__ = "ignis_one_of"
    _traverse_internals = [  # noqa: RUF012 - as SQLAlchemy declares it
        ("column", InternalTraversal.dp_clauseelement),
        ("values", InternalTraversal.dp_clauseelement),
    ]
    inherit_cache = True
    type = Boolean()

    def __init__(self, column: ColumnElement[Any], values: BindParameter[Any]) -> None:
        self.column = column
        self.values = values

    @property
    def _from_objects(self) -> Any:
        return self.column._from_objects

    def self_group(self, against: Any = None) -> OneOf:
        """Return itself: it binds more tightly than AND, OR and NOT."""
        return self

    def _negate(self) -> ColumnElement[Any]:
        return UnaryExpression(self, operator=operators.inv, type_=self.type)


def one_of(column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Return ``column IN values`` for any number of integers or texts."""
    return OneOf(column, bindparam(None, list(values), _list_of(column)))


def among(column: ColumnElement[Any], values: Iterable[Any] | None) -> list[ColumnElement[bool]]:
    """Return the condition of `one_of`; none if *values* are None, which stands for all."""
    return [] if values is None else [one_of(column, values)]


def one_of_given(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return ``column IN`` the parameter *name*, which is a list of integers or texts."""
    return OneOf(column, bindparam(name, type_=_list_of(column)))


def _list_of(column: ColumnElement[Any]) -> Any:
    return TEXTS if isinstance(column.type, String) else NUMBERS
