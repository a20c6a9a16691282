"""Timings: how long messages wait in main, and how long handlers take, of all processes.

A process counts in memory, and adds what it has counted to the catalog in a short transaction of
its own: at a firing, a settlement or a round of side tasks `FLUSH_SECONDS` later, and when it
closes the store. So a firing or a settlement pays nothing. Of a process that dies, the counts of
the last seconds are lost. Waiting ends at the firing, so it has no outcome.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from sqlalchemy import Connection, Row, bindparam, exists, select, update

from queue_core.catalog import dialect
from queue_core.catalog.record_tables import tallies
from queue_core.catalog.tables import queues
from queue_core.errors import IgnisError, Unavailable
from queue_core.values.histogram import (
    BUCKETS,
    Counts,
    Measured,
    nothing,
    packed,
    quantile,
    unpacked,
)

WAITING, HANDLING = "waiting", "handling"
#: Seconds for which a process keeps what it has counted.
FLUSH_SECONDS = 5.0
#: The quantiles of samples, by the ends of their names.
QUANTILES = {"p50": 0.5, "p99": 0.99}

#: A queue's id, what took the time, and the outcome of the messages, or nothing.
_Key: TypeAlias = tuple[int, str, str]
_Work: TypeAlias = Callable[[Connection], None]


class Timings:
    """What a process has measured and not written yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measured: dict[_Key, Measured] = {}
        self._since = time.monotonic()
        self._process = os.getpid()

    def add(self, queue_id: int, measured: Measured, outcome: str | None = None) -> None:
        """Add how long messages took a handler with an *outcome*, or waited, without one."""
        key = (queue_id, WAITING, "") if outcome is None else (queue_id, HANDLING, outcome)
        with self._lock:
            self._add(key, measured)

    def _add(self, key: _Key, measured: Measured) -> None:
        before = self._measured.get(key)
        self._measured[key] = measured if before is None else before.plus(measured)

    def flush(self, write: Callable[[_Work], object], *, at_once: bool = False) -> None:
        """
        Write what was measured, if it is due; later if the catalog cannot be reached.

        *write*: runs a function in a writing transaction.
        """
        if not at_once and time.monotonic() - self._since < FLUSH_SECONDS:
            return
        with self._lock:
            found, self._measured = self._measured, {}
            self._since = time.monotonic()
            # A fork leaves what it has a copy of to the process that has measured it.
            is_copy, self._process = self._process != os.getpid(), os.getpid()
        if is_copy or not found:
            return
        try:
            write(lambda connection: _write(connection, found))
        except IgnisError as error:
            # Figures are not worth an error of the caller, and none is to count twice.
            if isinstance(error, Unavailable) and not error.outcome_unknown:
                with self._lock:
                    for key, measured in found.items():
                        self._add(key, measured)


def _write(connection: Connection, found: Mapping[_Key, Measured]) -> None:
    ids = sorted({queue_id for queue_id, _, _ in found})
    known = set(connection.scalars(select(queues.c.id).where(dialect.one_of(queues.c.id, ids))))
    keys = [key for key in sorted(found) if key[0] in known]
    if not keys:
        return
    columns = ("queue_id", "name", "label")
    rows = [dict(zip(columns, key, strict=True)) | {"shard": 0, "total": 0} for key in keys]
    connection.execute(dialect.insert_new(connection, tallies).on_conflict_do_nothing(), rows)
    # In this order, so that no two processes wait for each other.
    query = _rows(dialect.one_of(tallies.c.queue_id, sorted(known)))
    changed = []
    for row in connection.execute(query.with_for_update()):
        measured = found.get((row.queue_id, row.name, row.label))
        if measured is not None:
            counts = _counts(row.counts) + measured.counts
            total = row.total + round(measured.seconds * 1e6)
            changed.append(_changed(row, total=total, counts=counts.tobytes(), sampled=row.sampled))
    # The queues may have been dropped since they were found.
    if changed:
        connection.execute(_UPDATE, changed)


def read(connection: Connection) -> Sequence[Row[Any]]:
    """Return the rows of all queues, each with the name of its `queue`."""
    query = select(queues.c.name.label("queue"), tallies).join(
        tallies, tallies.c.queue_id == queues.c.id
    )
    order = (queues.c.name, tallies.c.name, tallies.c.label)
    return connection.execute(query.where(_OURS).order_by(*order)).all()


def measured(row: Row[Any]) -> Measured:
    """Return what a row of `read` has."""
    return Measured(_counts(row.counts), row.total / 1e6)


def take_sample(connection: Connection) -> dict[int, bytes]:
    """Return what was counted since the last call, by queue, as `merged` takes it."""
    found: dict[int, Counts] = {}
    changed = []
    query = _rows(_NEW).with_for_update()
    for row in connection.execute(query):
        counts = np.maximum(_counts(row.counts) - _counts(row.sampled), 0)
        both = found.setdefault(row.queue_id, np.zeros(2 * BUCKETS, np.int64))
        both[slice(0, BUCKETS) if row.name == WAITING else slice(BUCKETS, None)] += counts
        changed.append(_changed(row, total=row.total, counts=row.counts, sampled=row.counts))
    if changed:
        connection.execute(_UPDATE, changed)
    parts = {queue_id: packed(counts) for queue_id, counts in found.items()}
    return {queue_id: part for queue_id, part in parts.items() if part is not None}


def merged(parts: Iterable[bytes]) -> dict[str, Any]:
    """Return the columns of a sample of what `take_sample` has returned once or several times."""
    both = sum((unpacked(part, 2 * BUCKETS) for part in parts), np.zeros(2 * BUCKETS, np.int64))
    columns: dict[str, Any] = {"timings": packed(both)}
    for name, counts in ((WAITING, both[:BUCKETS]), (HANDLING, both[BUCKETS:])):
        for end, part in QUANTILES.items():
            seconds = quantile(counts, part)
            columns[f"{name}_{end}"] = None if seconds is None else round(seconds * 1e6)
    return columns


_OURS = tallies.c.name.in_((WAITING, HANDLING))
_NEW = tallies.c.counts.is_distinct_from(tallies.c.sampled)
#: Whether there is something for `take_sample`.
UNSAMPLED = exists().where(_OURS, _NEW)


def _rows(*where: Any) -> Any:
    order = (tallies.c.queue_id, tallies.c.name, tallies.c.label)
    return select(tallies).where(_OURS, *where).order_by(*order)


def _changed(row: Row[Any], **values: Any) -> dict[str, Any]:
    keys = {"of_queue": row.queue_id, "of_name": row.name, "of_label": row.label}
    return keys | {f"new_{name}": value for name, value in values.items()}


def _counts(data: bytes | None) -> Counts:
    return np.frombuffer(data, np.int64) if data else nothing()


_UPDATE = (
    update(tallies)
    .where(
        tallies.c.queue_id == bindparam("of_queue"),
        tallies.c.name == bindparam("of_name"),
        tallies.c.label == bindparam("of_label"),
    )
    .values({name: bindparam(f"new_{name}") for name in ("total", "counts", "sampled")})
)
