"""The fields of a user's class, and how its objects are made again.

Pydantic is never imported: its models are recognised by their attributes, and validate the values
that objects are made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Protocol, get_type_hints

import pyarrow as pa

from queue_core.handling.objects.codecs import Codec, Misfit, nested
from queue_core.handling.objects.hints import codec_of


class DataclassObject(Protocol):
    """An object of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A field of a class."""

    name: str
    codec: Codec
    #: Whether the constructor takes it; otherwise it is set afterwards.
    init: bool


def is_message_class(kind: Any) -> bool:
    """Return whether an object is a dataclass or a pydantic model, the class itself."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or _is_model(kind))


def fields_of(kind: type, within: tuple[type, ...] = ()) -> tuple[Field, ...]:
    """
    Return the fields of a class; *within* are the classes that contain it.

    Raises `Misfit` for a field that no column can hold.
    """
    if kind in within:
        raise Misfit(f"{kind.__name__} contains itself, and a column has a fixed depth")

    def record(inner: type) -> Codec | None:
        return _record(inner, (*within, kind)) if is_message_class(inner) else None

    found = []
    for name, hint, init in _hints(kind):
        found.append(Field(name, nested(name, partial(codec_of, record=record), hint), init))
    if not found:
        raise Misfit("it has no fields")
    return tuple(found)


def maker(kind: Any, fields: Sequence[Field]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that makes an object of the values of all fields, in their order."""
    names = [field.name for field in fields]
    if _is_model(kind):
        # A field with an alias is otherwise looked for by its alias.
        aliased = any(one.validation_alias or one.alias for one in kind.model_fields.values())
        how = {"by_name": True, "by_alias": False} if aliased else {}
        return lambda values: kind.model_validate(dict(zip(names, values, strict=True)), **how)
    if all(field.init and not field.kw_only for field in dataclasses.fields(kind)):
        return lambda values: kind(*values)

    def make(values: Sequence[Any]) -> Any:
        pairs = list(zip(fields, values, strict=True))
        one = kind(**{field.name: value for field, value in pairs if field.init})
        for field, value in pairs:
            if not field.init:
                # As it was loaded, even if the class is frozen.
                object.__setattr__(one, field.name, value)
        return one

    return make


def _is_model(kind: type) -> bool:
    return callable(getattr(kind, "model_validate", None)) and hasattr(kind, "model_fields")


def _hints(kind: type) -> list[tuple[str, Any, bool]]:
    """Return the name and the type of each field, and whether the constructor takes it."""
    if _is_model(kind):
        return _hints_of_model(kind)
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise Misfit(f"a field has an unknown type ({error}); define it at the top") from error
    own = dataclasses.fields(kind)
    if {name for name, hint in hints.items() if isinstance(hint, dataclasses.InitVar)}:
        raise Misfit("an InitVar is not kept, so that objects cannot be made again")
    return [(field.name, hints[field.name], field.init) for field in own]


def _hints_of_model(kind: Any) -> list[tuple[str, Any, bool]]:
    if getattr(kind, "__pydantic_root_model__", False):
        raise Misfit("a RootModel has no named fields")
    if kind.model_config.get("extra") == "allow":
        raise Misfit("extra='allow' permits values that have no column")
    return [
        (name, Annotated[(one.annotation, *one.metadata)] if one.metadata else one.annotation, True)
        for name, one in kind.model_fields.items()
    ]


def _record(kind: type, within: tuple[type, ...]) -> Codec:
    """Return the codec of a class inside another one: a struct."""
    fields = fields_of(kind, within)
    make = maker(kind, fields)
    parts = [(field.name, attrgetter(field.name), field.codec) for field in fields]

    def encode(one: Any) -> dict[str, Any]:
        if type(one) is not kind:
            raise Misfit(f"{kind.__name__} is needed, not {type(one).__name__}")
        return {name: nested(name, codec.encoded, [get(one)])[0] for name, get, codec in parts}

    def decode(row: Mapping[str, Any]) -> Any:
        return make([nested(name, codec.decoded, [row[name]])[0] for name, _, codec in parts])

    struct = pa.struct([field.codec.field(field.name) for field in fields])
    return Codec(struct, (kind,), encode=encode, decode=decode)
