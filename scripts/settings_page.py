"""Write docs/settings.md from the declarations of `QueueSettings`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from queue_core.settings import QueueSettings
from scripts.docstrings import markdown

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

_HEAD = """# Settings of a queue

Generated from `QueueSettings` by `make docs`. Give settings to `Store.create_queue` or
`Queue.change_settings`, or on the command line as `NAME=VALUE`. All of them can be changed while
the queue is in use. An unknown setting, or a value out of range, raises `BadOption`.

| setting | default | allowed | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    rows = [
        f"| `{each.name}` | {_shown(each.default)} | {each.metadata['allowed'].text} | "
        f"{markdown(each.metadata['about'])} |"
        for each in fields(QueueSettings)
    ]
    return _HEAD + "\n".join(rows) + "\n"


def _shown(default: object) -> str:
    if default is None or default == ():
        return "none"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


if __name__ == "__main__":
    PAGE.write_text(page())
