"""What a check looks at: a state of the catalog, and the storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, or_

from queue_core.catalog.tables import slices
from queue_core.fsck.finding import Finding, Remedy
from queue_core.segments.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One state of the catalog, in which a check looks at everything."""

    connection: Connection
    storage: Storage
    #: Also reads the bytes of every segment.
    deep: bool
    #: The time by the catalog's clock, in microseconds.
    now: int


#: A check yields what it finds.
Check = Callable[[Scope], Iterator[Finding]]


def of_slice(
    invariant: str,
    row: Any,
    problem: str,
    remedy: Remedy = Remedy.SET_APART,
) -> Finding:
    """Return a finding about a slice, whose row has its id, queue and times."""
    return Finding(
        invariant=invariant,
        table=slices.name,
        key=(row.id,),
        queue_id=row.queue_id,
        problem=problem,
        remedy=remedy,
        since=max(row.moved_at, row.fired_at or 0),
    )


def broken(query: Select[Any], problems: dict[str, ColumnElement[bool]]) -> Select[Any]:
    """Add a column for each problem to a query, and keep the rows that have one."""
    flags = [case((wrong, 1), else_=0).label(name) for name, wrong in problems.items()]
    return query.add_columns(*flags).where(or_(*problems.values()))
