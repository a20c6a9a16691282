"""Write docs/api.md from the docstrings of the public surface."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa

from queue_core.errors import IgnisError
from scripts.docstrings import (
    Docstring,
    comments,
    described_fields,
    markdown,
    members,
    parameters,
    read,
)

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
PACKAGES = ("queue_core", "queue_core.testing", "pyspark_ignis")

_HEAD = """# API reference

Generated from the docstrings by `make docs`. These names are the public surface: import them from
`queue_core`, `queue_core.testing` or `pyspark_ignis`. All other modules may change without notice.
See also the [settings of a queue](settings.md), the [options of the Spark format](options.md) and
the [command line](cli.md).
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    shown: set[str] = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        parts.append(f"## {package}\n")
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) and issubclass(thing, IgnisError):
                continue
            parts.append(f"### {name}\n")
            own_name = getattr(thing, "__name__", name)
            if name in shown:
                parts.append(f"The same as `queue_core.{name}`.\n")
            elif own_name != name:
                parts.append(f"The same as `{own_name}`.\n")
            elif inspect.isclass(thing):
                parts += _class(name, thing)
            elif callable(thing):
                parts += _function(name, thing)
            else:
                home = importlib.import_module(module._HOMES[name])
                parts += _value(thing, comments(home)[name])
            shown.add(name)
        if package == "queue_core":
            parts += _errors(importlib.import_module("queue_core.errors"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def _class(name: str, cls: type) -> list[str]:
    docstring = read(cls)
    parts = [f"{markdown(docstring.text)}\n"]
    fields = described_fields(cls)
    if dataclasses.is_dataclass(cls):
        names = [each.name for each in dataclasses.fields(cls)]
        parts.append(_list("Fields", {each: fields.get(each, "") for each in names}))
    elif issubclass(cls, Enum):
        values = {
            f"{each.name} = {_literal(each.value)}": fields.get(each.name, "") for each in cls
        }
        parts.append(_list("Values", values))
    else:
        if docstring.entries.get("Args"):
            parts.append(_code(name, cls))
        parts.append(_sections(docstring))
    for member, thing in members(cls):
        if isinstance(thing, property):
            parts.append(f"- **`{member}`**: {markdown(inspect.cleandoc(thing.__doc__ or ''))}\n")
    for member, thing in members(cls):
        if not isinstance(thing, property):
            parts += [f"#### {name}.{member}\n", *_function(member, thing)]
    return parts


def _function(name: str, function: Any) -> list[str]:
    docstring = read(function)
    return [_code(name, function), f"{markdown(docstring.text)}\n", _sections(docstring)]


def _code(name: str, function: Any) -> str:
    declared = _parameters(function)
    returned = inspect.signature(function).return_annotation
    result = "" if inspect.isclass(function) else f" -> {returned}"
    text = f"{name}({', '.join(declared)}){result}"
    if len(text) > 100:
        lines = "".join(f"    {each},\n" for each in declared)
        text = f"{name}(\n{lines}){result}"
    return f"```text\n{text}\n```\n"


def _parameters(function: Any) -> list[str]:
    """Return the parameters as they are declared."""
    texts = []
    for each in parameters(function):
        if each.kind is each.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f" = {_literal(each.default)}"
        texts.append(f"{stars}{each.name}: {each.annotation}{default}")
    return texts


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _sections(docstring: Docstring) -> str:
    parts = []
    for section, title in (("Args", "Arguments"), ("Attributes", "Attributes")):
        parts.append(_list(title, docstring.entries.get(section, {})))
    for section in ("Returns", "Yields"):
        if text := docstring.texts.get(section):
            parts.append(f"**{section}:** {markdown(' '.join(text.split()))}\n")
    parts.append(_list("Raises", docstring.entries.get("Raises", {})))
    return "\n".join(part for part in parts if part)


def _list(title: str, entries: dict[str, str]) -> str:
    if not entries:
        return ""
    rows = [f"- `{name}`: {markdown(text)}".removesuffix(": ") for name, text in entries.items()]
    return "\n".join([f"**{title}:**\n", *rows, ""])


def _value(value: Any, comment: str) -> list[str]:
    """Show a schema, or a dict of schemas."""
    schemas = value if isinstance(value, dict) else {"": value}
    parts = [f"{markdown(comment)}\n"]
    for name, schema in schemas.items():
        assert isinstance(schema, pa.Schema)
        columns = ", ".join(f"`{each.name}` ({each.type})" for each in schema)
        parts.append(f"- `{name}`: {columns}" if name else f"{columns}")
    return ["\n".join(parts) + "\n"]


def _errors(module: Any) -> list[str]:
    base = read(module.IgnisError)
    classes = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, module.IgnisError)
    ]
    return [
        "### Errors\n",
        f"{markdown(inspect.getdoc(module) or '')}\n",
        f"`IgnisError` is the base of all of them:\n\n{_sections(base)}",
        *(
            f"- **`{each.__name__}`** ({each.__base__.__name__}): {' '.join(_told(each).split())}"
            for each in classes
            if each is not module.IgnisError
        ),
        "",
    ]


def _told(error: type) -> str:
    return markdown(read(error).text)
