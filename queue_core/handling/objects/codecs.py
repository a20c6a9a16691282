"""Codecs: how values of a Python type become a column, and how a column becomes such values.

Arrow converts texts, numbers and times by itself. But it also takes values of wrong types, and cuts
the fraction off a number, so a codec checks the types of values first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa

#: Makes another value of a value that is not None; raises `Misfit`.
Convert: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Codec:
    """The column of a Python type."""

    kind: pa.DataType
    #: The classes of the values; a subclass of them is taken too.
    accepts: tuple[type, ...]
    #: Whether None is allowed.
    nullable: bool = False
    #: Make the value that Arrow takes, and the value of the one that Arrow returns; None: the same.
    encode: Convert | None = None
    decode: Convert | None = None

    def field(self, name: str) -> pa.Field:
        """Return the column with a name."""
        return pa.field(name, self.kind, self.nullable)

    def encoded(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return values as Arrow takes them; raises `Misfit`."""
        for found in set(map(type, values)):
            if not self._takes(found):
                called = "None" if found is type(None) else found.__name__
                raise Misfit(f"{self.accepts[0].__name__} is needed, not {called}")
        return _each(self.encode, values)

    def decoded(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return values as the type has them; raises `Misfit`."""
        if not self.nullable and any(value is None for value in values):
            raise Misfit("is null")
        return _each(self.decode, values)

    def _takes(self, found: type) -> bool:
        if found is type(None):
            return self.nullable
        for kind in (bool, datetime):
            # They are subclasses of int and date, but other types of columns. Pandas has its own
            # class of datetime.
            if issubclass(found, kind):
                return kind in self.accepts
        return issubclass(found, self.accepts)


def _each(convert: Convert | None, values: Sequence[Any]) -> Sequence[Any]:
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]


class Misfit(ValueError):
    """A value that does not fit its type, or a type that no column can hold; and where it is."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self._problem, self._path = problem, path

    def within(self, step: str) -> Misfit:
        """Return the same with a longer path, as seen from the enclosing value."""
        between = "." if self._path and not self._path.startswith("[") else ""
        return Misfit(self._problem, f"{step}{between}{self._path}")


def nested(step: str, convert: Convert, value: Any) -> Any:
    """Return a converted value that another one contains; a `Misfit` then names the step to it."""
    try:
        return convert(value)
    except Misfit as misfit:
        raise misfit.within(step) from misfit.__cause__


def one_of(values: Sequence[Any]) -> Convert:
    """Return a function that returns one of some values, and raises `Misfit` for another one."""

    def checked(value: Any) -> Any:
        if value not in values:
            raise Misfit(f"{value!r} is not one of {', '.join(map(repr, values))}")
        return value

    return checked
