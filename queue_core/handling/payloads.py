"""Payloads: objects that a handler takes instead of rows, of JSON text or of all columns.

A dataclass is filled from JSON by the names of its fields; other names are left out. The payload is
unreadable if a field without a default is missing, or a value does not have its field's type. For
more than that, use pydantic.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pyarrow as pa

from queue_core.errors import BadOption
from queue_core.handling.objects.codecs import Misfit, nested, one_of
from queue_core.handling.objects.message_class import MessageClass
from queue_core.handling.objects.python_rows import Unreadable, rows_of
from queue_core.values.durations import is_number
from queue_core.values.failure_kinds import reason_of

#: The arguments of one call of the handler; it is not called with an `Unreadable`.
Call: TypeAlias = tuple[Any, ...]
#: Makes an object of a JSON value; raises any exception for one that does not fit.
Reader: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Payload:
    """The column that holds the JSON text, and the objects that are made of it."""

    column: str
    #: Makes an object of the user's type; None for the JSON value as it is.
    read: Reader | None = None
    #: Whether the handler takes the other columns too, as a dict.
    with_metadata: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that the objects are made of."""
        return [self.column]

    def calls(self, batch: pa.RecordBatch) -> list[Call]:
        """Return the arguments of the call for each message."""
        columns = batch if self.with_metadata else batch.select([self.column])
        return [self._call(row) for row in rows_of(columns)]

    def _call(self, row: dict[str, Any] | Unreadable) -> Call:
        if isinstance(row, Unreadable):
            return (row,)
        text = row.pop(self.column)
        if text is None:
            return (Unreadable(f"{self.column} is null"),)
        try:
            # JSON in bytes is UTF-8; json.loads would take other encodings too.
            message = json.loads(text if isinstance(text, str) else str(text, "utf-8"))
            if self.read is not None:
                message = self.read(message)
        except Exception as error:  # noqa: BLE001 - a user's type may raise anything
            return (Unreadable(reason_of(error)),)
        return (message, row) if self.with_metadata else (message,)


@dataclass(frozen=True, slots=True)
class ObjectPayload:
    """Objects of a user's class, whose fields are columns of the queue."""

    kind: MessageClass
    #: Whether the handler takes the other columns too, as a dict.
    with_metadata: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that the objects are made of."""
        return list(self.kind.schema.names)

    def calls(self, batch: pa.RecordBatch) -> list[Call]:
        """Return the arguments of the call for each message."""
        objects = self.kind.objects_of(batch)
        if not self.with_metadata:
            return [(one,) for one in objects]
        others = [name for name in batch.schema.names if name not in self.columns]
        return [
            (row,) if isinstance(row, Unreadable) else (one, row)
            for one, row in zip(objects, rows_of(batch.select(others)), strict=True)
        ]


def reader_of(kind: Any) -> Reader:
    """Return a reader for a type; raises `BadOption` for one that cannot be made from JSON."""
    validate = getattr(kind, "model_validate", None)
    if isinstance(kind, type) and callable(validate):
        return validate  # type: ignore[no-any-return]
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise BadOption(
            f"payload_type={kind!r}: give a dataclass or a pydantic model, the class itself"
        )
    return _Shapes().of(kind)


class _Shapes:
    """Readers of types, each made once, since a dataclass may contain itself."""

    def __init__(self) -> None:
        self._of_dataclass: dict[type, Reader] = {}

    def of(self, hint: Any) -> Reader:
        if hint is Any or hint is object:
            return lambda value: value
        if hint is None or hint is type(None):
            return _nothing
        origin, args = get_origin(hint), get_args(hint)
        if origin is Union or origin is types.UnionType:
            return self._union(args)
        if origin is Literal:
            return one_of(args)
        if origin in (list, set, frozenset) or hint in (list, set, frozenset):
            return self._many(origin or hint, args[0] if args else Any)
        if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
            return self._many(tuple, args[0])
        if hint is dict or (origin is dict and args[0] is str):
            return self._named(args[1] if args else Any)
        if isinstance(hint, type):
            if is_dataclass(hint):
                return self._dataclass(hint)
            if issubclass(hint, Enum):
                return _made(hint, hint)
            if hint in _PLAIN:
                return _plain(hint)
            if hint in _FROM_TEXT:
                return _from_text(hint)
        raise BadOption(
            f"payload_type: {hint!r} cannot be read from JSON; use a pydantic model for it"
        )

    def _dataclass(self, kind: type) -> Reader:
        # Looked up when it is called, since it may not be finished yet.
        known = self._of_dataclass
        if kind not in known:
            known[kind] = _nothing
            known[kind] = self._filled(kind)
        return lambda value: known[kind](value)

    def _filled(self, kind: type) -> Reader:
        try:
            hints = get_type_hints(kind)
        except NameError as error:
            raise BadOption(
                f"payload_type: {kind.__name__} has a field of an unknown type ({error}); define "
                "the type at the top of its module"
            ) from error
        given = [field for field in fields(kind) if field.init]
        readers = {field.name: self.of(hints[field.name]) for field in given}
        required = [each.name for each in given if each.default is each.default_factory is MISSING]

        def fill(value: Any) -> Any:
            if not isinstance(value, dict):
                raise Misfit(f"an object is needed for {kind.__name__}, not {_name(value)}")
            for name in required:
                if name not in value:
                    raise Misfit("is missing", name)
            return kind(
                **{
                    name: nested(name, read, value[name])
                    for name, read in readers.items()
                    if name in value
                }
            )

        return fill

    def _union(self, hints: tuple[Any, ...]) -> Reader:
        readers = [self.of(hint) for hint in hints]

        def first(value: Any) -> Any:
            misfits = []
            for read in readers:
                try:
                    return read(value)
                except Misfit as misfit:
                    misfits.append(misfit)
            # The last of them is usually None, whose error says the least.
            raise misfits[0]

        return first

    def _many(self, kind: Callable[[list[Any]], Any], hint: Any) -> Reader:
        read = self.of(hint)

        def each(value: Any) -> Any:
            _check(value, list, "a list")
            return kind([nested(f"[{number}]", read, item) for number, item in enumerate(value)])

        return each

    def _named(self, hint: Any) -> Reader:
        read = self.of(hint)

        def each(value: Any) -> Any:
            _check(value, dict, "an object")
            return {name: nested(name, read, item) for name, item in value.items()}

        return each


#: Types that JSON has itself: the Python types that fit, and their names in errors.
_PLAIN: Mapping[type, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
}
#: Types that JSON holds as text, or as a number.
_FROM_TEXT: Mapping[type, Reader] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    Decimal: lambda value: Decimal(str(value)),
    UUID: UUID,
}


def _plain(kind: type) -> Reader:
    fitting, called = _PLAIN[kind]

    def same(value: Any) -> Any:
        # True is an int in Python, but not a number in JSON.
        if not isinstance(value, fitting) or (isinstance(value, bool) and kind is not bool):
            raise Misfit(f"{called} is needed, not {_name(value)}")
        return kind(value)

    return same


def _from_text(kind: type) -> Reader:
    make = _made(kind, _FROM_TEXT[kind])

    def made(value: Any) -> Any:
        if not (isinstance(value, str) or (kind is Decimal and is_number(value))):
            raise Misfit(f"a text is needed for a {kind.__name__}, not {_name(value)}")
        return make(value)

    return made


def _made(kind: type, make: Reader) -> Reader:
    def made(value: Any) -> Any:
        try:
            return make(value)
        except (ValueError, ArithmeticError) as error:
            raise Misfit(f"{value!r} is not a valid {kind.__name__}") from error

    return made


def _nothing(value: Any) -> None:
    if value is not None:
        raise Misfit(f"null is needed, not {_name(value)}")


def _check(value: Any, kind: type, called: str) -> None:
    if not isinstance(value, kind):
        raise Misfit(f"{called} is needed, not {_name(value)}")


def _name(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
