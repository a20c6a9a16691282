"""Read the figures of a store in one transaction. Samples that were read before are remembered."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from ignis_console.figures import (
    FailedJob,
    Figures,
    FigureSample,
    Holder,
    OpenBreaker,
    QueueFigures,
)
from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.holders import holding
from queue_core.catalog.records import breakers, figures, jobs, retries, samples, schedule, stuck
from queue_core.catalog.records.samples import FINEST
from queue_core.values.settings import QueueSettings

#: Samples of a queue that are kept, and the seconds that they are of.
KEPT = 60
SPAN_SECONDS = KEPT * FINEST


class SnapshotReader:
    """Reads `Figures`, each time in one reading transaction, for one thread at a time."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._newest = 0
        self._samples: dict[int, deque[FigureSample]] = {}

    def read(self) -> Figures:
        """Read the present figures; raises `CatalogUnavailable`."""
        with self._lock, self._catalog.read() as connection:
            now = dialect.read_clock(connection)
            self._follow_samples(connection, now)
            found = tuple(read_queues(connection, now, self._samples))
            gone = self._samples.keys() - {queue.id for queue in found}
            for queue_id in gone:
                del self._samples[queue_id]
            return Figures(
                now=now,
                queues=found,
                holders=tuple(read_holders(connection, now)),
                breakers=tuple(_breakers(connection, now)),
                failed_jobs=tuple(_failed_jobs(connection)),
                tasks=_tasks(connection, now),
            )

    def _follow_samples(self, connection: Connection, now: int) -> None:
        begin = max(self._newest, now - SPAN_SECONDS * 1_000_000)
        for row in samples.since(connection, FINEST, begin, upto=now):
            kept = self._samples.setdefault(row.queue_id, deque(maxlen=KEPT))
            kept.append(sample_of(row))
            self._newest = row.taken_at
        if self._newest > now:
            # The clock was set back.
            self._newest = 0
            self._samples.clear()


def read_queues(
    connection: Connection,
    now: int,
    samples_of: Mapping[int, Sequence[FigureSample]],
    only: int | None = None,
) -> Iterator[QueueFigures]:
    """
    Yield the figures of all queues, in order of their names, or of the queue *only*.

    *now*: the catalog's time. *samples_of*: the latest samples by the ids of the queues.
    """
    ids = None if only is None else [only]
    known = {row.id: row for row in queues.states(connection, ids)}
    shovels = schedule.begun_by_queue(connection, "shovel", only)
    overdue = retries.overdue(connection, now, only)
    held_long = stuck.read(connection, now, ids)
    for row in sorted(figures.read(connection, ids), key=lambda each: str(each.queue)):
        about = known[row.queue_id]
        settings = settings_of(about.settings)
        long = held_long.get(row.queue_id)
        yield QueueFigures(
            id=row.queue_id,
            name=row.queue,
            waiting=row.waiting,
            oldest_age=None if row.oldest_age is None else row.oldest_age / 1e6,
            in_flight=row.in_flight,
            sidelined=row.sidelined,
            retrying=row.retrying,
            dead=row.dead,
            damaged=row.damaged,
            shards=about.shards,
            concurrency=settings.concurrency,
            max_size=settings.max_size,
            overflow=settings.overflow,
            paused_for=_since(about.paused_at, now),
            deactivated=about.deactivated_at is not None,
            retries=settings.retry is not None,
            overdue_for=_since(overdue.get(row.queue_id), now),
            shovelled_before=_since(shovels.get(row.queue_id), now),
            shovel_interval=settings.shovel_interval,
            stuck=long.messages if long else 0,
            stuck_for=_since(long.fired_at, now) if long else None,
            samples=tuple(samples_of.get(row.queue_id, ())),
        )


def sample_of(row: Any) -> FigureSample:
    """Return a row of the table of samples as a value."""

    def rate(grown: int | None) -> float | None:
        return grown * 1e6 / row.elapsed if grown is not None and row.elapsed else None

    return FigureSample(
        taken_at=row.taken_at / 1e6,
        waiting=row.waiting,
        oldest_age=None if row.oldest_age is None else row.oldest_age / 1e6,
        in_flight=row.in_flight,
        sidelined=row.sidelined,
        loaded_per_s=rate(row.new_loaded),
        fired_per_s=rate(row.new_fired),
        deleted_per_s=rate(row.new_deleted),
        sidelined_per_s=rate(row.new_sidelined),
    )


def read_samples(
    connection: Connection, queue_id: int, seconds: int, since: int
) -> list[FigureSample]:
    """Return the samples of a queue since a time, one for *seconds* each, oldest first."""
    found = samples.since(connection, seconds, since, queue_id=queue_id)
    return [sample_of(row) for row in found]


def read_holders(connection: Connection, now: int, queue_id: int | None = None) -> Iterator[Holder]:
    """Yield the consumers that hold messages, of one queue or of all."""
    for row in holding(connection, queue_id):
        yield Holder(
            name=row.name,
            held=int(row.held),
            held_for=_since(row.fired_at, now),
            silent_for=_since(row.heartbeat_at, now),
        )


@lru_cache(maxsize=4096)
def settings_of(text: str) -> QueueSettings:
    """Read the settings of a queue, as the catalog stores them."""
    return QueueSettings.from_json(text)


def _breakers(connection: Connection, now: int) -> Iterator[OpenBreaker]:
    for row in breakers.opened(connection, 100):
        yield OpenBreaker(row.name, row.value, row.state, max(now - row.since_at, 0) / 1e6)


def _failed_jobs(connection: Connection) -> Iterator[FailedJob]:
    for row in jobs.failed(connection, 20):
        yield FailedJob(row.id, row.name, row.error)


def _tasks(connection: Connection, now: int) -> dict[str, float]:
    begun = schedule.last_begun(connection)
    return {task: max(now - at, 0) / 1e6 for task, at in begun.items()}


def _since(at: int | None, now: int) -> float | None:
    return None if at is None else max(now - at, 0) / 1e6
