"""The sideline of a queue, grouped by the kind and the fingerprint of the failures."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from math import ceil

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.values.fingerprints import LENGTH, first_lines

#: Rows on one page of a list, and the most reasons of one group that are shown.
PER_PAGE = 100
MOST_REASONS = 20


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Messages of a sideline whose last failures are alike."""

    #: None: they have not failed, or the failure is forgotten.
    kind: str | None
    #: What their reasons have in common; None: they have none.
    fingerprint: str | None
    messages: int
    dead: int
    #: When the first of them returns to main; None: none has a time.
    next_due: datetime | None
    first_sidelined: datetime | None
    last_sidelined: datetime | None


@dataclass(frozen=True, slots=True)
class LiteralReason:
    """Messages of a group whose reasons have the same first line."""

    reason: str | None
    messages: int
    dead: int


@dataclass(frozen=True, slots=True)
class KeptTrace:
    """The end of the trace of one failure of a group."""

    message_id: int
    failed_at: datetime
    trace: str


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


def within(page: int, rows: int) -> tuple[int, int]:
    """Return the number of a page of a list that exists, and how many pages the rows fill."""
    pages = max(ceil(rows / PER_PAGE), 1)
    return min(page, pages), pages


def group(rows: pa.Table, search: str = "", page: int = 1) -> Groups:
    """
    Group rows of the view ``sideline``; the largest group comes first.

    *search*: a text in the kind, in the fingerprint or in the first line of a reason, in any case.
    *page*: from 1; the last one if there are fewer.
    """
    shown = _shown(rows)
    groups = (
        shown.append_column("has", _has(shown, search))
        .group_by(["kind", "fingerprint"])
        .aggregate(
            [
                ("message_id", "count"),
                ("dead", "sum"),
                ("due_at", "min"),
                ("sidelined_at", "min"),
                ("sidelined_at", "max"),
                ("has", "any"),
            ]
        )
    )
    wanted = groups.filter(groups.column("has_any")).drop_columns("has_any")
    page, pages = within(page, wanted.num_rows)
    ordered = wanted.sort_by(
        [("message_id_count", "descending"), ("kind", "ascending"), ("fingerprint", "ascending")]
    ).slice((page - 1) * PER_PAGE, PER_PAGE)
    names = [field.name for field in fields(FailureGroup)]
    return Groups(
        messages=rows.num_rows,
        all_groups=groups.num_rows,
        found=wanted.num_rows,
        groups=tuple(FailureGroup(**row) for row in ordered.rename_columns(names).to_pylist()),
        page=page,
        pages=pages,
    )


def members(
    rows: pa.Table, kind: str | None, fingerprint: str | None, reason: str | None = None
) -> pa.Table:
    """
    Return the rows of one group, newest first.

    *reason*: only those with this first line, which need no *fingerprint*.
    """
    found = rows.filter(_is(rows.column("kind"), kind))
    if fingerprint is not None or reason is None:
        found = found.filter(_is(found.column("fingerprint"), fingerprint))
    if reason is not None:
        found = found.filter(_is(_lines(found), reason))
    return found.sort_by([("sidelined_at", "descending"), ("message_id", "ascending")])


def reasons(rows: pa.Table) -> tuple[LiteralReason, ...]:
    """Return the first lines of the reasons of one group, those of the most messages first."""
    found = _shown(rows).group_by("line").aggregate([("message_id", "count"), ("dead", "sum")])
    ordered = found.sort_by([("message_id_count", "descending"), ("line", "ascending")])
    names = [field.name for field in fields(LiteralReason)]
    return tuple(LiteralReason(**row) for row in ordered.rename_columns(names).to_pylist())


def trace_of(traces: pa.Table, kind: str | None, fingerprint: str | None) -> KeptTrace | None:
    """Return the trace of a group, from the view ``traces``."""
    of_kind = traces.filter(_is(traces.column("kind"), kind))
    found = of_kind.filter(_is(of_kind.column("fingerprint"), fingerprint))
    names = [field.name for field in fields(KeptTrace)]
    return next((KeptTrace(**row) for row in found.select(names).to_pylist()), None)


def _shown(rows: pa.Table) -> pa.Table:
    """Return rows with the first line of their reason, as ``line``, and ``dead`` as a number."""
    dead = rows.column("dead").cast(pa.int64())
    rows = rows.set_column(rows.schema.get_field_index("dead"), "dead", dead)
    return rows.append_column("line", _lines(rows))


def _lines(rows: pa.Table) -> pa.ChunkedArray:
    return pc.utf8_slice_codeunits(first_lines(rows.column("reason")), 0, LENGTH)


def _has(rows: pa.Table, search: str) -> pa.ChunkedArray:
    found = [
        pc.fill_null(pc.match_substring(rows.column(name), search, ignore_case=True), not search)
        for name in ("kind", "fingerprint", "line")
    ]
    return pc.or_(pc.or_(*found[:2]), found[2])


def _is(column: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    if value is None:
        return pc.is_null(column)
    return pc.fill_null(pc.equal(column, value), False)
