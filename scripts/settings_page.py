"""Write docs/settings.md from the fields of `QueueSettings`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import get_args, get_origin, get_type_hints

from queue_core.settings import QueueSettings
from scripts.docstrings import described_fields, markdown

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

_HEAD = """# Settings of a queue

Generated from `QueueSettings` by `make docs`. Give settings to `Store.create_queue` or
`Queue.change_settings`, or on the command line as `NAME=VALUE`. All of them can be changed while
the queue is in use. An unknown setting, or a value out of range, raises `BadOption`.

| setting | type | default | meaning |
|---|---|---|---|
"""
_TYPES = {int: "whole number", float: "number", str: "text", NoneType: "none"}


def page() -> str:
    """Return the whole page."""
    types, texts = get_type_hints(QueueSettings), described_fields(QueueSettings)
    rows = []
    for each in fields(QueueSettings):
        kind = _kind(types[each.name])
        rows.append(
            f"| `{each.name}` | {kind} | {_shown(each.default)} | {markdown(texts[each.name])} |"
        )
    return _HEAD + "\n".join(rows) + "\n"


def _kind(annotation: object) -> str:
    if get_origin(annotation) is tuple:
        return "list of column names"
    return " or ".join(_TYPES[kind] for kind in get_args(annotation) or [annotation])


def _shown(default: object) -> str:
    if default is None or default == ():
        return "none"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


if __name__ == "__main__":
    PAGE.write_text(page())
