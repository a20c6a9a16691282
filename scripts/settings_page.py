"""Write docs/settings.md from the declarations of `QueueSettings`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from queue_core.values.settings import QueueSettings
from scripts.docstrings import markdown

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

_HEAD = """# Settings of a queue

Generated from `QueueSettings` by `make docs`. Pass settings as keyword arguments to
`Store.create_queue` or `queue.admin.change_settings`, for example `sweep_after=900`, with `None`
for none. Every setting can be changed while the queue is in use. An unknown setting, or a value
that is not allowed, raises `BadOption`.

On the command line, `ignis set` and `ignis create --set` take `NAME=VALUE`:

| value | write |
|---|---|
| seconds | `sweep_after=900`, or a duration with a unit: `90s`, `15m`, `2h`, `2d` |
| a list of columns | `attributes=amount,customer` |
| none | `message_expiry=none`; for a list, an empty list |
| everything else | as it is: `max_size=1000`, `policy=latest` |

| setting | default | allowed | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    rows = [
        f'| <a id="{each.name}"></a>`{each.name}` | '
        f"{_shown(each.default)} | {each.metadata['allowed'].text} | "
        f"{markdown(each.metadata['about'])} |"
        for each in fields(QueueSettings)
    ]
    return _HEAD + "\n".join(rows) + "\n"


def _shown(default: object) -> str:
    if default is None or default == ():
        return "none"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
