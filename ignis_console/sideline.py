"""The sideline of a queue, grouped by the kind and the first line of the reason."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from math import ceil

import pyarrow as pa
import pyarrow.compute as pc

#: Groups on one page, and the most characters of a first line.
PER_PAGE = 100
LINE_LENGTH = 300


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Messages of a sideline whose last failures are alike."""

    #: None: they have not failed, or the failure is forgotten.
    kind: str | None
    #: The first line of the reason; None: there is none.
    reason: str | None
    messages: int
    dead: int
    #: When the first of them returns to main; None: none has a time.
    next_due: datetime | None
    first_sidelined: datetime | None
    last_sidelined: datetime | None


@dataclass(frozen=True, kw_only=True)
class Groups:
    """One page of the groups that a search finds, those with the most messages first."""

    #: How many messages and groups the sideline has.
    messages: int
    all_groups: int
    #: How many groups the search finds.
    found: int
    groups: tuple[FailureGroup, ...]
    page: int
    pages: int


def within(page: int, rows: int, per_page: int) -> tuple[int, int]:
    """Return the number of a page that exists, and how many pages the rows fill."""
    pages = max(ceil(rows / per_page), 1)
    return min(page, pages), pages


def with_line(rows: pa.Table) -> pa.Table:
    """Return rows of the view ``sideline`` with the first line of the reason, as ``line``."""
    reasons = rows.column("reason").cast(pa.string())
    first = pc.replace_substring_regex(reasons, r"(?s)\r?\n.*", "")
    return rows.append_column("line", pc.utf8_slice_codeunits(first, 0, LINE_LENGTH))


def group(rows: pa.Table, search: str = "", page: int = 1) -> Groups:
    """
    Group rows of the view ``sideline``; the largest group comes first.

    *search*: a text in the kind or the first line of the reason, in any case. *page*: from 1; the
    last one if there are fewer.
    """
    shown = with_line(rows)
    table = shown.set_column(
        shown.schema.get_field_index("dead"), "dead", shown.column("dead").cast(pa.int64())
    )
    found = table.group_by(["kind", "line"]).aggregate(
        [
            ("message_id", "count"),
            ("dead", "sum"),
            ("due_at", "min"),
            ("sidelined_at", "min"),
            ("sidelined_at", "max"),
        ]
    )
    wanted = found.filter(_has(found, search)) if search else found
    page, pages = within(page, wanted.num_rows, PER_PAGE)
    ordered = wanted.sort_by(
        [("message_id_count", "descending"), ("kind", "ascending"), ("line", "ascending")]
    ).slice((page - 1) * PER_PAGE, PER_PAGE)
    names = [field.name for field in fields(FailureGroup)]
    return Groups(
        messages=rows.num_rows,
        all_groups=found.num_rows,
        found=wanted.num_rows,
        groups=tuple(FailureGroup(**row) for row in ordered.rename_columns(names).to_pylist()),
        page=page,
        pages=pages,
    )


def members(rows: pa.Table, kind: str | None, reason: str | None) -> pa.Table:
    """Return the rows of one group, newest first."""
    shown = with_line(rows)
    mask = pc.and_(_is(shown.column("kind"), kind), _is(shown.column("line"), reason))
    return shown.filter(mask).sort_by([("sidelined_at", "descending"), ("message_id", "ascending")])


def _has(groups: pa.Table, search: str) -> pa.ChunkedArray:
    found = [
        pc.fill_null(pc.match_substring(groups.column(name), search, ignore_case=True), False)
        for name in ("kind", "line")
    ]
    return pc.or_(*found)


def _is(column: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    if value is None:
        return pc.is_null(column)
    return pc.fill_null(pc.equal(column, value), False)
