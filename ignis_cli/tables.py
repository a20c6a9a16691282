"""Rows on the command line: a table that fits the terminal, TSV in a pipe, or lines of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ignis_cli.display import complain, console, in_json, put, show_json, visible
from queue_core.values.ids import IdSet
from queue_core.values.json_text import as_json
from queue_core.values.valid_text import readable
from queue_core.watching.wording import TOO_OLD, age, counted, size

if TYPE_CHECKING:
    from rich.table import Table

    from queue_core import Queue, Store
    from queue_core.verbs.operator.redriving import Redriving

# Arrow looks for pandas at its first array, and would import it, which takes half a second. A later
# `to_pandas` looks again.
if "pandas" not in sys.modules:
    sys.modules["pandas"] = None  # type: ignore[assignment]
    with suppress(AttributeError, ImportError):
        pa.array([])
    del sys.modules["pandas"]

#: Characters of a text that is not folded into several lines, and between two columns.
_TEXT_WIDTH = 18
_GAP = 2


def show(
    rows: pa.Table,
    columns: Sequence[str] | None = None,
    *,
    without: Sequence[str] = (),
    last: int | None = None,
    objects: Sequence[str] = (),
) -> None:
    """
    Print rows: as a table or TSV of *columns*, or as JSON, one object per line with all columns.

    *without*: columns that the table leaves out. *last*: print only this many rows, the latest
    ones, and say how many are left out. *objects*: columns whose texts are JSON.
    """
    left_out = max(rows.num_rows - last, 0) if last else 0
    rows = rows.slice(left_out)
    if in_json.get():
        for row in as_rows(rows):
            show_json(row | {name: row[name] and json.loads(row[name]) for name in objects})
    else:
        names = [name for name in columns or rows.column_names if name not in without]
        show_table(rows.select(names))
    if left_out:
        rows_are = counted(left_out, "earlier row is", "earlier rows are")
        complain(f"{rows_are} not shown; show more with --last")


def say_what_lacks(queue: Queue, found: int) -> None:
    """Say why a queue gives only some messages: damage, a pause, or there are no more."""
    (row,) = queue.store.view("queues", queue.info.name).to_pylist()
    name, damaged = queue.info.name, row["damaged"]
    if damaged:
        are = counted(damaged, "message is", "messages are")
        text = f"{are} quarantined, because segments are damaged"
        complain(f"queue {name}: {text}: ignis repair {name}")
    if row["state"] == "paused":
        way = f"set {name} concurrency=8" if row["paused_at"] is None else f"resume {name}"
        complain(f"queue {name} is paused: ignis {way}")
    elif not found:
        complain(f"queue {queue.name} has no message to fire here and now")


def say_what_expires(store: Store, every: Redriving) -> None:
    """Say how many messages stay in the sideline since they would expire where they are to go."""
    # Not at the top: other commands start sooner.
    from queue_core.verbs.operator import redriving

    left = redriving.withheld(store.catalog, store.storage, every)
    if left:
        stay = counted(left, "message stays", "messages stay")
        way = "edit their own time" if every.target else TOO_OLD
        place = (every.target or every.queue).name
        complain(f"{stay} in the sideline, and would expire in {place} at once: {way}")


def say_what_is_dead(store: Store, every: Redriving) -> None:
    """Say how many dead messages match, which only force moves."""
    from queue_core.verbs.operator import redriving

    living = every._replace(wish=replace(every.wish, force=False))
    catalog, storage = store.catalog, store.storage
    dead = redriving.count(catalog, storage, every) - redriving.count(catalog, storage, living)
    if dead:
        complain(f"{counted(dead, 'dead message matches', 'dead messages match')}: use --force")


def forced(queue: Queue, ids: Any, where: str | None, to: str | None) -> Redriving:
    """Return the move of all messages of the sideline that match, dead ones too."""
    from queue_core.catalog.records.jobs import Wish
    from queue_core.verbs.operator import redriving

    wish = Wish(selector=where, ids=None if ids is None else IdSet.of(ids), force=True)
    return redriving.wished(queue.store.catalog, queue.info, to, wish)


def show_facts(named: Mapping[str, Any], kind: str | None = None) -> None:
    """Print names with their values; *kind*: what `cell` takes for the name of each value."""
    values = [_text(each) if each is not None else "" for each in named.values()]
    if sys.stdout.isatty():
        values = [cell(kind or name, value) for name, value in named.items()]
    show_table(pa.table({"name": [*named], "value": values}))


def show_table(rows: pa.Table, title: str | None = None) -> None:
    """Print rows as a table on a terminal, and as TSV in a pipe."""
    if sys.stdout.isatty():
        screen = console()
        shown, left_out = grid(rows, screen.width, title)
        with screen.capture() as captured:
            screen.print(shown)
        put(captured.get())
        if left_out:
            complain(f"the terminal is too narrow for {', '.join(left_out)}")
        return
    lines = [rows.column_names, *(map(_plain, row.values()) for row in as_rows(rows))]
    put("".join("\t".join(line) + "\n" for line in lines))


def grid(rows: pa.Table, width: int, title: str | None = None) -> tuple[Table, list[str]]:
    """
    Return rows as a table for people, and the columns that are too many for the width.

    The first columns are the most important ones, and the last to be left out. Numbers are to the
    right, and nulls blank. Long texts are folded.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title, title_justify="left", header_style="bold", box=None, pad_edge=False,
        padding=(0, _GAP, 0, 0), collapse_padding=True,
    )  # fmt: skip
    cells: list[list[Text]] = []
    left_out: list[str] = []
    found = list(as_rows(rows))
    for field in rows.schema:
        name = field.name.removesuffix("_age")
        texts = [visible(cell(field.name, row[field.name])) for row in found]
        widest = max(cell_len(line) for text in [name, *texts] for line in text.split("\n"))
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        folds = not numeric and not pa.types.is_timestamp(field.type)
        least = max(cell_len(name), min(widest, _TEXT_WIDTH)) if folds else widest
        if cells and width < least:
            left_out.append(field.name)
            continue
        width -= least + _GAP
        table.add_column(
            name, justify="right" if numeric else "left", no_wrap=not folds, overflow="fold"
        )
        # As plain text: brackets in a message are not markup.
        cells.append([Text(text) for text in texts])
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    return table, left_out


def as_rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows as dicts."""
    # It reads files too, which most commands do not.
    from ignis_cli import json_lines

    columns = [
        [json_lines.value_for(value, column.type) for value in column.to_pylist()]
        for column in readable(rows).columns
    ]
    for row in zip(*columns, strict=True):
        yield dict(zip(rows.column_names, row, strict=True))


def cell(name: str, value: object) -> str:
    """Return a value for people."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float) and name.endswith(("_age", "_wait")):
        return age(value, brief=True)
    if isinstance(value, int) and not isinstance(value, bool) and not name.endswith("id"):
        return size(value) if name == "bytes" else f"{value:,}"
    return _text(value)


def _plain(value: object) -> str:
    """Return a value for a program that reads TSV: in one line, without separators."""
    text = "" if value is None else _text(value).replace("\t", "\\t").replace("\n", "\\n")
    return visible(text)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return as_json(value) if isinstance(value, dict | list) else str(value)
