"""Redrives: the jobs that move sidelined messages, with how far each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.store import Store
from queue_core.watching import views

#: The most redrives that are shown.
MOST = 100
#: Seconds after its end for which the page of a queue shows a redrive.
RECENT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Redrive:
    """A row of the view ``jobs``."""

    job: str
    queue: str
    target: str | None
    selector: str | None
    rate: float | None
    by_id: bool
    force: bool
    state: str
    moved: int
    total: int
    moved_per_s: float | None
    seconds_left: float | None
    who: str
    begun_at: datetime
    ended_at: datetime | None
    error: str | None

    def said(self) -> str:
        """Return how far it is, for the page that follows its start."""
        moved = f"{self.moved:,} of {self.total:,} messages"
        match self.state:
            case "waiting":
                return f"Redrive {self.job} waits for a process that runs side tasks."
            case "running":
                return f"Redrive {self.job} is running. Below is how far it is."
            case "failed":
                return f"Redrive {self.job} failed after {moved}: {self.error}"
            case state:
                return f"Redrive {self.job} is {state}: it has moved {moved}."


def read(store: Store) -> tuple[int, tuple[Redrive, ...]]:
    """Return the catalog's time, and the latest redrives of the store: `of_queue`."""
    with store.catalog.read() as connection:
        return dialect.read_clock(connection), of_queue(connection, None)[:MOST]


def of_queue(connection: Connection, queue: str | None) -> tuple[Redrive, ...]:
    """Return the redrives of a queue or of all; those that go on first, and then the latest."""
    rows = views.read(connection, "jobs", queue, "").to_pylist()
    found = [_redrive(row) for row in reversed(rows)]
    return tuple(sorted(found, key=lambda each: each.ended_at is not None))


def recent(found: Iterable[Redrive], now: datetime) -> tuple[Redrive, ...]:
    """Return the redrives that go on, or ended a short time ago."""
    return tuple(
        each
        for each in found
        if each.ended_at is None or (now - each.ended_at).total_seconds() < RECENT_SECONDS
    )


def _redrive(row: Mapping[str, Any]) -> Redrive:
    return Redrive(**{each.name: row[each.name] for each in fields(Redrive)})
