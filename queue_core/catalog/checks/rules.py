"""The scope of a check, and the parts that all checks share: findings about rows, and seals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, case, or_

from queue_core.catalog import seals
from queue_core.catalog.checks.finding import Finding, Remedy
from queue_core.catalog.tables import id_map, queues, segments, slices
from queue_core.segments.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One state of the catalog, which a check reads as a whole."""

    connection: Connection
    storage: Storage
    #: Also reads the bytes of every segment.
    deep: bool
    #: The time by the catalog's clock, in microseconds.
    now: int
    #: Which share of the segments it looks at, and of how many.
    share: tuple[int, int] = (0, 1)


#: A check yields its findings.
Check = Callable[[Scope], Iterator[Finding]]

#: What I1 says of a row.
ALTERED = "a value of the row is not what was written"
#: Rows that stand for messages, which a repair can set apart.
_OF_MESSAGES = (slices, segments, id_map)
#: Columns that say when a row was written.
_TIMES = (
    *("created_at", "loaded_at", "moved_at", "fired_at", "planned_at", "published_at"),
    *("registered_at", "done_at", "since"),
)


def of_row(
    table: Table, row: Any, invariant: str, problem: str, remedy: Remedy | None = None
) -> Finding:
    """Return a finding about a row of a table; by default its messages are set apart, if any."""
    if remedy is None:
        remedy = Remedy.SET_APART if table in _OF_MESSAGES else Remedy.NONE
    times = (getattr(row, name, None) for name in _TIMES)
    return Finding(
        invariant=invariant,
        table=table.name,
        key=tuple(getattr(row, column.name) for column in table.primary_key),
        queue_id=row.id if table is queues else getattr(row, "queue_id", None),
        problem=problem,
        remedy=remedy,
        since=max((time for time in times if isinstance(time, int)), default=None),
    )


def is_altered(table: Table, row: Mapping[str, Any]) -> bool:
    """Return whether a value of a whole row is not what was written."""
    return bool(row["seal"] != seals.seal(table, row))


def find_rows(
    scope: Scope,
    table: Table,
    query: Select[Any],
    problems: dict[str, tuple[str, ColumnElement[bool]]],
) -> Iterator[Finding]:
    """Find the rows of a query that have problems: for each invariant, a text and a condition."""
    flags = [case((wrong, 1), else_=0).label(name) for name, (_, wrong) in problems.items()]
    wrong = query.add_columns(*flags).where(or_(*(wrong for _, wrong in problems.values())))
    for row in scope.connection.execute(wrong):
        for name, (text, _) in problems.items():
            if getattr(row, name):
                yield of_row(table, row, name, text)


def can(read: Callable[[Any], object], value: Any) -> bool:
    """Return whether a value can be read."""
    try:
        read(value)
    except Exception:  # noqa: BLE001 - damaged values may raise anything
        return False
    return True
