"""Read the figures of a store in one transaction. Samples that were read before are remembered."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, and_, func, select

from ignis_console.figures import (
    FailedJob,
    Figures,
    Holder,
    OpenBreaker,
    QueueFigures,
    Sample,
)
from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import figures, stuck
from queue_core.catalog.records.samples import FINEST
from queue_core.catalog.tables import (
    breakers,
    consumers,
    jobs,
    queues,
    samples,
    schedule,
    slices,
)
from queue_core.values.settings import QueueSettings

#: Samples of a queue that are kept, and the seconds that they are of.
KEPT = 60
SPAN_SECONDS = KEPT * FINEST

_SAMPLE = select(
    samples.c.queue_id,
    samples.c.taken_at,
    samples.c.waiting,
    samples.c.oldest_age,
    samples.c.in_flight,
    samples.c.sidelined,
    samples.c.elapsed,
    samples.c.new_loaded,
    samples.c.new_fired,
    samples.c.new_deleted,
    samples.c.new_sidelined,
)


class SnapshotReader:
    """Reads `Figures`, each time in one reading transaction, for one thread at a time."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._newest = 0
        self._samples: dict[int, deque[Sample]] = {}

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
        query = _SAMPLE.where(
            samples.c.seconds == FINEST, samples.c.taken_at > begin, samples.c.taken_at <= now
        )
        for row in connection.execute(query.order_by(samples.c.taken_at)):
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
    samples_of: Mapping[int, Sequence[Sample]],
    only: int | None = None,
) -> Iterator[QueueFigures]:
    """
    Yield the figures of all queues, in order of their names, or of the queue *only*.

    *now*: the catalog's time. *samples_of*: the latest samples by the ids of the queues.
    """
    described = select(
        queues.c.id,
        queues.c.settings,
        queues.c.shards,
        queues.c.paused_at,
        queues.c.deactivated_at,
    )
    ids = None if only is None else [only]
    described = described if only is None else described.where(queues.c.id == only)
    known = {row.id: row for row in connection.execute(described)}
    shovels = _shovels(connection, now, only)
    overdue = _overdue(connection, now, only)
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
            overdue_for=overdue.get(row.queue_id),
            shovelled_before=shovels.get(row.queue_id),
            shovel_interval=settings.shovel_interval,
            stuck=long.messages if long else 0,
            stuck_for=_since(long.fired_at, now) if long else None,
            samples=tuple(samples_of.get(row.queue_id, ())),
        )


def sample_of(row: Any) -> Sample:
    """Return a row of the table of samples as a value."""

    def rate(grown: int | None) -> float | None:
        return grown * 1e6 / row.elapsed if grown is not None and row.elapsed else None

    return Sample(
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


def read_samples(connection: Connection, queue_id: int, seconds: int, since: int) -> list[Sample]:
    """Return the samples of a queue since a time, one for *seconds* each, oldest first."""
    query = _SAMPLE.where(
        samples.c.queue_id == queue_id, samples.c.seconds == seconds, samples.c.taken_at > since
    )
    return [sample_of(row) for row in connection.execute(query.order_by(samples.c.taken_at))]


def read_holders(connection: Connection, now: int, queue_id: int | None = None) -> Iterator[Holder]:
    """Yield the consumers that hold messages, of one queue or of all."""
    # In the index of tickets, which has few of the slices of a store.
    here = and_(slices.c.consumer_id == consumers.c.id, slices.c.consumer_id.is_not(None))
    of_queue = dialect.of(connection).not_indexed(slices.c.queue_id) == queue_id
    query = (
        select(
            consumers.c.name,
            consumers.c.heartbeat_at,
            func.sum(slices.c.count).label("held"),
            func.min(slices.c.fired_at).label("fired_at"),
        )
        .join(slices, here if queue_id is None else and_(here, of_queue))
        .group_by(consumers.c.id, consumers.c.name, consumers.c.heartbeat_at)
        .order_by(consumers.c.name)
    )
    for row in connection.execute(query):
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
    query = select(breakers).where(breakers.c.state != "closed").order_by(breakers.c.name)
    for row in connection.execute(query.limit(100)):
        yield OpenBreaker(row.name, row.value, row.state, max(now - row.since_at, 0) / 1e6)


def _failed_jobs(connection: Connection) -> Iterator[FailedJob]:
    query = (
        select(jobs.c.id, queues.c.name, jobs.c.error)
        .join(queues, queues.c.id == jobs.c.queue_id)
        .where(jobs.c.state == "failed")
        .order_by(jobs.c.ended_at.desc())
        .limit(20)
    )
    for row in connection.execute(query):
        yield FailedJob(row.id, row.name, row.error)


def _tasks(connection: Connection, now: int) -> dict[str, float]:
    newest = func.max(schedule.c.begun_at).label("newest")
    query = select(schedule.c.task, newest).group_by(schedule.c.task)
    return {task: max(now - begun, 0) / 1e6 for task, begun in connection.execute(query)}


def _shovels(connection: Connection, now: int, only: int | None) -> dict[int, float]:
    query = select(schedule.c.queue_id, schedule.c.begun_at).where(schedule.c.task == "shovel")
    query = query if only is None else query.where(schedule.c.queue_id == only)
    return {queue: max(now - begun, 0) / 1e6 for queue, begun in connection.execute(query)}


def _overdue(connection: Connection, now: int, only: int | None) -> dict[int, float]:
    first = func.min(slices.c.due_at).label("first")
    query = select(slices.c.queue_id, first).where(slices.c.due_at <= now)
    query = query.where(slices.c.due_at.is_not(None)).group_by(slices.c.queue_id)
    query = query if only is None else query.where(slices.c.queue_id == only)
    return {queue: (now - due) / 1e6 for queue, due in connection.execute(query)}


def _since(at: int | None, now: int) -> float | None:
    return None if at is None else max(now - at, 0) / 1e6
