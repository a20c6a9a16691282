"""Write docs/api.md and the pages of docs/api from the docstrings of the public surface."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
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

_HEAD = """# API reference

Generated from the docstrings by `make docs`. These names are the public surface: import them from
`queue_core`, `queue_core.testing` or `pyspark_ignis`. All other modules may change without notice.
See also the [settings of a queue](settings.md), the [options of the Spark format](options.md) and
the [command line](cli.md).
"""


@dataclasses.dataclass(frozen=True)
class ApiPage:
    """One page: the public names of a package that some of its rooms define."""

    name: str
    package: str
    title: str
    about: str
    #: The folders or modules of the package; none for all that it defines.
    rooms: tuple[str, ...] = ()

    @property
    def PAGE(self) -> Path:
        """Where the page is, by the name that the modules of other pages give it."""
        return PAGE.parent / "api" / f"{self.name}.md"

    def names(self) -> list[str]:
        """Return the names on the page, in the order of `__all__`."""
        module = importlib.import_module(self.package)
        return [
            name for name in module.__all__ if not self.rooms or _room(module, name) in self.rooms
        ]

    def page(self) -> str:
        """Return the whole page."""
        parts = [
            f"# {self.title}\n",
            f"{self.about} Import them from `{self.package}`. [All names](../api.md)\n",
        ]
        if self.rooms == ("errors",):
            parts += _errors(importlib.import_module("queue_core.errors"))
        else:
            for name in self.names():
                parts += _entry(self.package, name)
        return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


PARTS = (
    ApiPage(
        "store",
        "queue_core",
        "API: stores",
        "A store, and what is done to all of its queues.",
        ("store", "upkeep"),
    ),
    ApiPage(
        "queue",
        "queue_core",
        "API: queues",
        "A queue, and what an administrator does with it.",
        ("queue",),
    ),
    ApiPage(
        "firing",
        "queue_core",
        "API: firings",
        "Firings, and chosen messages.",
        ("waiting", "verbs"),
    ),
    ApiPage(
        "pool",
        "queue_core",
        "API: pools and handlers",
        "Pools, handlers and what they return, breakers, and consumers.",
        ("pool", "handling", "consumers", "catalog", "support"),
    ),
    ApiPage(
        "policies",
        "queue_core",
        "API: policies",
        "Policies and checks of smart queues, and conditions in Python.",
        ("policies", "selector", "segments"),
    ),
    ApiPage(
        "values",
        "queue_core",
        "API: values",
        "Settings, retries, limits, ids, and the columns of views.",
        ("values",),
    ),
    ApiPage(
        "watching",
        "queue_core",
        "API: metrics",
        "Metrics for Prometheus and OpenTelemetry.",
        ("watching",),
    ),
    ApiPage("errors", "queue_core", "API: errors", "What ignis raises.", ("errors",)),
    ApiPage(
        "testing",
        "queue_core.testing",
        "API: queue_core.testing",
        "Help for tests of handlers.",
    ),
    ApiPage(
        "pyspark_ignis",
        "pyspark_ignis",
        "API: pyspark_ignis",
        "Handlers, queries and their manager in Spark.",
    ),
)


def page() -> str:
    """Return the page that lists all names, each with its first sentence."""
    parts = [_HEAD]
    for each in PARTS:
        heading = each.title.removeprefix("API: ")
        parts.append(f"## {heading if '_' in heading else heading.capitalize()}\n")
        parts += [each.about + "\n", "| name | |", "|---|---|", *_listed(each), ""]
    return "\n".join(parts)


def _listed(each: ApiPage) -> Iterator[str]:
    """Yield a row for each name of a page, with a link to its heading there."""
    module = importlib.import_module(each.package)
    for name in each.names():
        thing = getattr(module, name)
        anchor = "errors" if each.name == "errors" else name.lower()
        sentence = _first_sentence(module, name, thing)
        yield f"| [`{name}`](api/{each.name}.md#{anchor}) | {sentence} |"


def _first_sentence(module: Any, name: str, thing: Any) -> str:
    if inspect.isclass(thing) or callable(thing):
        text = read(thing).text
    else:
        text = comments(importlib.import_module(module._HOMES[name]))[name]
    plain = markdown(" ".join(text.split()))
    return re.split(r"(?<=[.:])\s", plain)[0].rstrip(".:").replace("|", "\\|")


def _is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, IgnisError)


def _room(module: Any, name: str) -> str:
    """Return the folder or the module of the package that defines a name."""
    if _is_error(getattr(module, name)):
        return "errors"
    return str(module._HOMES[name]).removeprefix(f"{module.__name__}.").partition(".")[0]


def _entry(package: str, name: str) -> list[str]:
    """Return what a page says of a name."""
    module = importlib.import_module(package)
    thing = getattr(module, name)
    own_name = getattr(thing, "__name__", name)
    parts = [f"### {name}\n"]
    core = importlib.import_module("queue_core")
    if package != "queue_core" and name in core.__all__:
        parts.append(f"The same as `queue_core.{name}`.\n")
    elif own_name != name:
        parts.append(f"The same as `{own_name}`.\n")
    elif inspect.isclass(thing):
        parts += _class(name, thing)
    elif callable(thing):
        parts += _function(name, thing)
    else:
        parts += _value(thing, comments(importlib.import_module(module._HOMES[name]))[name])
    return parts


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
