"""Render the templates: everything that is shown is escaped.

Characters that change the direction of the text around them are shown as escapes, so that a message
cannot make a page say something else. Only the values of fields keep them, marked as `Exact`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension

from ignis_console import charts
from queue_core.catalog.records.samples import FINEST
from queue_core.values.json_text import as_json
from queue_core.watching import wording
from queue_core.watching.present import SPAN_SECONDS, FigureSample

#: Characters that change the direction of the text around them.
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_HERE = Path(__file__).parent
STATIC = _HERE / "static"


#: The path under which the browser of a request sees the console, such as ``/ignis``.
ROOT: ContextVar[str] = ContextVar("ROOT", default="")
#: The links of templates that begin at the root.
_LINKS = re.compile(r'\b(href|(?:form)?action|src)="/')


class _Rooted(Extension):
    """Puts the root of the console before the links in templates, which are written without it."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Return the text of a template with its links."""
        return _LINKS.sub(r'\1="{{ root() }}/', source)


class Exact(str):
    """The value of a field, which comes back with the form as it is."""

    __slots__ = ()


def _visible(value: object) -> object:
    """Return what an expression of a template shows."""
    # The output of a macro is escaped already.
    if not isinstance(value, str) or isinstance(value, Exact) or hasattr(value, "__html__"):
        return value
    return _TURNING.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


def shown(value: Any, most: int = 2000) -> str:
    """Return a value of a message as text for a page, at most *most* characters."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        text = value[:most].hex(" ")
    elif isinstance(value, str):
        text = value
    else:
        held = json.loads(as_json(value))
        text = held if isinstance(held, str) else repr(held)
    return text if len(text) <= most else text[:most] + "…"


def label(action: str) -> str:
    """Return what the page and the button of an action are called."""
    labels = {"reload": "Take back", "cancel": "Cancel the redrive"}
    return labels.get(action, action.replace("_", " ").capitalize())


@cache
def environment() -> Environment:
    """Return the environment of the templates."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Rooted],
    )
    made.filters |= {
        "number": wording.number,
        "rate": wording.rate,
        "age": wording.age,
        "took": wording.took,
        "counted": wording.counted,
        "clock": wording.clock,
        "size": wording.size,
        "shown": shown,
        "label": label,
        "exact": Exact,
        "path": lambda text: quote(str(text), safe=""),
    }
    made.globals |= {
        "asset": lambda name: ROOT.get() + asset(name),
        "root": ROOT.get,
        "query": lambda **values: urlencode({k: v for k, v in values.items() if v is not None}),
        "spark": spark,
        "history": history,
        "bars": charts.bars,
    }
    return made


def render(template: str, **values: Any) -> str:
    """Return a page."""
    return environment().get_template(template).render(**values)


@cache
def asset(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def spark(
    samples: Sequence[FigureSample], name: str, now: float, width: int, height: int
) -> charts.Line:
    """Return the line of a figure in the last minutes."""
    return history(samples, (name,), now, SPAN_SECONDS, FINEST, width, height)[0]


def history(
    samples: Sequence[FigureSample],
    names: Sequence[str],
    now: float,
    span: float,
    each: float,
    width: int = 600,
    height: int = 120,
) -> list[charts.Line]:
    """Return lines of some figures with one scale; samples are *each* seconds apart."""
    lines = [[(sample.taken_at, getattr(sample, name)) for sample in samples] for name in names]
    top = max((value for line in lines for _, value in line if value is not None), default=0)
    return [
        charts.line(points, now - span, now, width, height, gap=3 * each, top=top or 1)
        for points in lines
    ]
