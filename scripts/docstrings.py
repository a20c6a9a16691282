"""Read docstrings in Google style: their text, and the entries of their sections."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

#: The sections whose lines are entries, ``name: text``; the text of the others is kept as it is.
ENTRIES = ("Args", "Attributes", "Raises")
#: Public methods that only ignis itself calls; they are not part of the surface.
INTERNAL = {
    "Annihilate.bind",
    "Buffer.loading",
    "Confirm.bind",
    "DropDuplicates.bind",
    "IdSet.of_scan",
    "IdSet.rows",
    "IdSet.segments",
    "Latest.bind",
    "Merge.bind",
    "MergeAdjacent.bind",
    "Pressure.watch",
    "QueueSettings.changed",
    "QueueSettings.from_json",
    "QueueSettings.of",
    "QueueSettings.to_json",
    "Take.check",
    "Take.fold",
    "Vectorised.bind",
}
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_ENTRY = re.compile(r"^(\*{0,2}\w+)(?: \([^)]*\))?:\s*(.*)$")
_FIELD = re.compile(r"^(\w+)\s*(?::[^=]+)?(?:=|$)")


@dataclass(frozen=True)
class Docstring:
    """A docstring, taken apart."""

    text: str
    #: The entries of ``Args``, ``Attributes`` and ``Raises``, by section.
    entries: dict[str, dict[str, str]] = field(default_factory=dict)
    #: The text of ``Returns`` or ``Yields``, by section.
    texts: dict[str, str] = field(default_factory=dict)


def read(thing: object) -> Docstring:
    """Take the docstring of an object apart; one that it inherits does not count."""
    lines = inspect.cleandoc(getattr(thing, "__doc__", None) or "").splitlines()
    parts: dict[str, list[str]] = {"": []}
    section = ""
    for line in lines:
        heading = _SECTION.match(line)
        if heading:
            section = heading[1]
            parts[section] = []
        elif section and line and not line.startswith(" "):
            raise ValueError(f"{thing!r}: text after the section {section}: {line}")
        else:
            parts[section].append(line)
    text = "\n".join(parts.pop("")).strip()
    cleaned = {name: inspect.cleandoc("\n" + "\n".join(part)) for name, part in parts.items()}
    return Docstring(
        text,
        {name: _entries(part) for name, part in cleaned.items() if name in ENTRIES},
        {name: part for name, part in cleaned.items() if name not in ENTRIES},
    )


def comments(thing: Any) -> dict[str, str]:
    """Return the ``#:`` comments above the fields or members of a class, or in a module."""
    found: dict[str, str] = {}
    comment: list[str] = []
    for line in inspect.getsource(thing).splitlines():
        stripped = line.strip()
        if stripped.startswith("#:"):
            comment.append(stripped[2:].strip())
            continue
        name = _FIELD.match(stripped)
        if comment and name:
            found[name[1]] = " ".join(comment)
        comment = []
    return found


def described_fields(cls: type) -> dict[str, str]:
    """Return the texts of the fields of a class: of its sections, comments or declarations."""
    entries = read(cls).entries
    declared = {
        each.name: each.metadata["about"]
        for each in (dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ())
        if "about" in each.metadata
    }
    return {**comments(cls), **declared, **entries.get("Args", {}), **entries.get("Attributes", {})}


def markdown(text: str) -> str:
    """Return a docstring's text as Markdown, in which double backticks are single ones."""
    return re.sub(r"(?<!`)``(?!`)", "`", text).replace("|", "\\|")


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Return the public methods and properties of a class, and of faces that it inherits."""
    shared = (base for base in cls.__mro__[1:] if base.__module__.startswith("queue_core.queue."))
    own = dict(vars(cls))
    for base in shared:
        own |= {name: member for name, member in vars(base).items() if name not in own}
    for name, member in own.items():
        if isinstance(member, classmethod | staticmethod):
            member = member.__func__
        if f"{cls.__name__}.{name}" in INTERNAL:
            continue
        if not name.startswith("_") and isinstance(member, FunctionType | MethodType | property):
            yield name, member


def parameters(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function, without the one that it is bound to."""
    found = inspect.signature(function).parameters.values()
    return [each for each in found if each.name not in ("self", "cls")]


def _entries(text: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry:
            name = entry[1].lstrip("*")
            entries[name] = entry[2]
        elif name and line.strip():
            entries[name] = f"{entries[name]} {line.strip()}".strip()
    return entries
