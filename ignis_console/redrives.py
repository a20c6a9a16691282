"""Redrives: the jobs that move sidelined messages, as the view ``jobs`` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.errors import BadOption
from queue_core.store import Store
from queue_core.watching import views
from queue_core.watching.wording import EPOCH, moment

#: The most redrives that are shown.
MOST = 100
#: Microseconds after its end for which the page of a queue shows a redrive.
RECENT_MICROS = 3_600_000_000

#: A row of the view ``jobs``.
Redrive: TypeAlias = Mapping[str, Any]


def read(store: Store) -> tuple[int, tuple[Redrive, ...]]:
    """Return the catalog's time, and the latest redrives of the store: `of_queue`."""
    with store.catalog.read() as connection:
        return dialect.read_clock(connection), of_queue(connection, None)[:MOST]


def of_queue(connection: Connection, queue: str | None, since: int = 0) -> tuple[Redrive, ...]:
    """
    Return the redrives of a queue or of all; those that go on first, and then the latest.

    *since*: not those that ended before a time, in microseconds.
    """
    begin = moment(since) or EPOCH
    rows = reversed(views.read(connection, "jobs", queue, "").to_pylist())
    found = [each for each in rows if (each["ended_at"] or begin) >= begin]
    return tuple(sorted(found, key=lambda each: each["ended_at"] is not None))


def find(store: Store, queue: str, job: str) -> Redrive:
    """Return a redrive of a queue; raises `BadOption` if it has no such one."""
    with store.catalog.read() as connection:
        for each in of_queue(connection, queue):
            if each["job"] == job:
                return each
    raise BadOption(f"job={job!r}: queue {queue!r} has no such redrive")


def said(redrive: Redrive) -> str:
    """Return how far it is, for the page that follows its start."""
    state, begin = redrive["state"], f"Redrive {redrive['job']}"
    if state == "waiting":
        return f"{begin} waits for a process that runs side tasks."
    if state == "running":
        return f"{begin} is running. Below is how far it is."
    moved = f"it has moved {redrive['moved']:,} of {redrive['total']:,} messages"
    return f"{begin} is {state}: {moved}. {redrive['error'] or ''}".strip()
