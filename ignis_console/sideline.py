"""The sideline of a queue, grouped by the kind and the first line of the reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

#: The most groups that are shown, and the most characters of a first line.
MOST_GROUPS = 200
LINE_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Group:
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


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups with the most messages, and how many groups and messages there are in all."""

    groups: tuple[Group, ...]
    all_groups: int
    messages: int


def with_line(rows: pa.Table) -> pa.Table:
    """Return rows of the view ``sideline`` with the first line of the reason, as ``line``."""
    reasons = rows.column("reason").cast(pa.string())
    first = pc.replace_substring_regex(reasons, r"(?s)\r?\n.*", "")
    return rows.append_column("line", pc.utf8_slice_codeunits(first, 0, LINE_LENGTH))


def group(rows: pa.Table) -> Groups:
    """Group rows of the view ``sideline``; the largest group comes first."""
    if not rows.num_rows:
        return Groups((), 0, 0)
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
    ordered = found.sort_by(
        [("message_id_count", "descending"), ("kind", "ascending"), ("line", "ascending")]
    ).slice(0, MOST_GROUPS)
    groups = tuple(
        Group(
            kind=row["kind"],
            reason=row["line"],
            messages=row["message_id_count"],
            dead=row["dead_sum"],
            next_due=row["due_at_min"],
            first_sidelined=row["sidelined_at_min"],
            last_sidelined=row["sidelined_at_max"],
        )
        for row in ordered.to_pylist()
    )
    return Groups(groups, found.num_rows, rows.num_rows)


def members(rows: pa.Table, kind: str | None, reason: str | None) -> pa.Table:
    """Return the rows of one group, newest first."""
    shown = with_line(rows)
    mask = pc.and_(_is(shown.column("kind"), kind), _is(shown.column("line"), reason))
    return shown.filter(mask).sort_by([("sidelined_at", "descending"), ("message_id", "ascending")])


def _is(column: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    if value is None:
        return pc.is_null(column)
    return pc.fill_null(pc.equal(column, value), False)
