"""The present: what a store has at one moment, which console, metrics and command line share.

One transaction reads counters and not messages, however many messages wait. None is a figure that
is not known, unless its field says otherwise. Ages are in seconds.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import holders
from queue_core.catalog.records import acts, figures, jobs, lags, retries, samples, schedule
from queue_core.catalog.records.samples import FINEST
from queue_core.catalog.slices import amounts, quarantined
from queue_core.catalog.slices.quarantined import Quarantined
from queue_core.segments.storage import Storage
from queue_core.values.json_text import HIDDEN
from queue_core.values.log_limits import Lag
from queue_core.values.model import Magazine, State
from queue_core.values.settings import QueueSettings
from queue_core.watching import causes, space
from queue_core.watching.causes import Causes, OpenBreaker, since
from queue_core.watching.space import Space

#: The seconds of the samples that `read` reads.
MINUTE = 60
#: Samples of a queue that are remembered, and the seconds that they are of.
REMEMBERED = 60
SPAN_SECONDS = REMEMBERED * FINEST
#: Seconds after which the rates of a sample are not shown as present ones. That of a minute is at
#: most 80 seconds old when the next one comes.
LATEST_SECONDS = 85.0

_COUNTS = ("waiting", "in_flight", "sidelined", "retrying", "dead", "damaged")
_RATES = tuple(f"{counter}_per_s" for counter in figures.COUNTED)


@dataclass(frozen=True, slots=True)
class FigureSample:
    """The figures of a queue at one moment of the past, in seconds since 1970."""

    taken_at: float
    waiting: int | None
    oldest_age: float | None
    longest_wait: float | None
    in_flight: int | None
    sidelined: int | None
    loaded_per_s: float | None
    returned_per_s: float | None
    fired_per_s: float | None
    deleted_per_s: float | None
    sidelined_per_s: float | None
    waiting_p50: float | None = None
    waiting_p99: float | None = None
    handling_p50: float | None = None
    handling_p99: float | None = None


class FailedJob(NamedTuple):
    """A shovel that ran as a job and failed, or that goes on and does not move."""

    job: str
    error: str | None
    has_ended: bool = True


@dataclass(frozen=True, kw_only=True)
class QueueFigures:
    """The figures of one queue."""

    id: int = field(metadata=HIDDEN)
    name: str
    #: ``active``, ``paused`` or ``deactivated``.
    state: str
    waiting: int | None
    #: Since the oldest waiting message was loaded; None: none waits, or it is not known.
    oldest_age: float | None
    #: Since such a message came into main, by a load or from the sideline.
    longest_wait: float | None
    in_flight: int | None
    sidelined: int | None
    retrying: int | None
    dead: int | None
    damaged: int | None
    shards: int
    concurrency: int
    #: Consumers that are connected; None: it is not known.
    consumers: int | None = None
    #: The rates of the newest sample; None: it says nothing about the present.
    #: New messages, and those that came back from the sideline.
    loaded_per_s: float | None = None
    returned_per_s: float | None = None
    fired_per_s: float | None = None
    deleted_per_s: float | None = None
    sidelined_per_s: float | None = None
    settings: QueueSettings = field(metadata=HIDDEN)
    #: Since a person paused it; None: nobody did.
    paused_for: float | None = field(metadata=HIDDEN)
    #: Who did; None: it is not known, or nobody.
    paused_by: str | None = field(default=None, metadata=HIDDEN)
    #: Since the first message of the sideline was due to return; None: none is late.
    overdue_for: float | None = field(metadata=HIDDEN)
    #: Without retries: since the task `shovel` last began for it; None: never.
    shovelled_before: float | None = field(metadata=HIDDEN)
    #: Messages in flight for longer than the setting ``sweep_after``, and since when.
    stuck: int = field(default=0, metadata=HIDDEN)
    stuck_for: float | None = field(default=None, metadata=HIDDEN)
    #: The segments whose messages cannot be read.
    quarantined: tuple[Quarantined, ...] = field(default=(), metadata=HIDDEN)
    causes: Causes = field(default=Causes(), metadata=HIDDEN)
    #: Of a subscription: how far it is behind, and since when it is detached; None: it is not.
    lag: Lag | None = field(default=None, metadata=HIDDEN)
    detached_for: float | None = field(default=None, metadata=HIDDEN)
    #: Its jobs that have failed, or do not move.
    jobs: tuple[FailedJob, ...] = field(default=(), metadata=HIDDEN)
    #: The latest ones, oldest first.
    samples: tuple[FigureSample, ...] = field(default=(), metadata=HIDDEN)
    #: The row of `figures.read`, with all counters.
    counts: Any = field(default=None, metadata=HIDDEN)
    #: The bytes of main that count for `max_bytes`; 0 without this bound, and in a ring.
    used_bytes: int = field(default=0, metadata=HIDDEN)

    @property
    def used(self) -> int | None:
        """The messages of main that count for `max_size`; None: it is not known."""
        if self.waiting is None or self.counts is None:
            return self.waiting
        flying = 0 if self.settings.has_room_on_fire else self.counts.main_in_flight
        return int(self.waiting + self.counts.main_damaged + flying)

    @property
    def is_paused(self) -> bool:
        """Whether a person or its concurrency keeps it from firing."""
        return self.paused_for is not None or self.concurrency == 0


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a store at one moment, from one state of the catalog."""

    #: The catalog's time, in microseconds since 1970.
    now: int
    queues: tuple[QueueFigures, ...]
    breakers: tuple[OpenBreaker, ...] = ()
    #: Since each side task last began, in any process.
    tasks: dict[str, float] = field(default_factory=dict)
    spaces: tuple[Space, ...] = ()


class FiguresReader:
    """Reads `Figures` for one thread at a time, and remembers the samples that it has read."""

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage
        self._lock = threading.Lock()
        self._newest = 0
        self._samples: dict[int, deque[FigureSample]] = {}

    def read(self) -> Figures:
        """Read the present figures; raises `CatalogUnavailable`."""
        spaces = space.read(self._catalog, self._storage)
        with self._lock, self._catalog.read() as connection:
            now = dialect.read_clock(connection)
            self._follow_samples(connection, now)
            found = _read(connection, now, self._samples, spaces)
            for queue_id in self._samples.keys() - {queue.id for queue in found.queues}:
                del self._samples[queue_id]
            return found

    def _follow_samples(self, connection: Connection, now: int) -> None:
        begin = max(self._newest, now - SPAN_SECONDS * 1_000_000)
        for row in samples.since(connection, FINEST, begin, upto=now):
            kept = self._samples.setdefault(row.queue_id, deque(maxlen=REMEMBERED))
            kept.append(_sample_of(row))
            self._newest = row.taken_at
        if self._newest > now:
            # The clock was set back.
            self._newest = 0
            self._samples.clear()
        for kept in self._samples.values():
            while kept and kept[0].taken_at < now / 1e6 - SPAN_SECONDS:
                kept.popleft()


def read(catalog: Catalog, storage: Storage) -> Figures:
    """Read the figures once; raises `CatalogUnavailable`."""
    spaces = space.read(catalog, storage)
    with catalog.read() as connection:
        return read_within(connection, dialect.read_clock(connection), spaces)


def read_within(connection: Connection, now: int, spaces: tuple[Space, ...]) -> Figures:
    """Return the figures within a transaction, with samples of whole minutes."""
    past: dict[int, list[FigureSample]] = defaultdict(list)
    for row in samples.since(connection, MINUTE, now - SPAN_SECONDS * 1_000_000, upto=now):
        past[row.queue_id].append(_sample_of(row))
    return _read(connection, now, past, spaces)


def read_queue(catalog: Catalog, name: str) -> QueueFigures:
    """Return the figures of one queue; raises `NoSuchQueue`."""
    with catalog.read() as connection:
        queue_id, now = queues.find(connection, name).id, dialect.read_clock(connection)
        return read_queue_within(connection, now, queue_id)


def read_queue_within(connection: Connection, now: int, queue_id: int) -> QueueFigures:
    """Return the figures of one queue within a transaction."""
    past = read_samples(connection, queue_id, FINEST, now - SPAN_SECONDS * 1_000_000)
    ((queue,), _) = _read_queues(connection, now, {queue_id: past}, queue_id)
    return queue


def _read(
    connection: Connection,
    now: int,
    samples_of: Mapping[int, Sequence[FigureSample]],
    spaces: tuple[Space, ...],
) -> Figures:
    found, breakers = _read_queues(connection, now, samples_of)
    begun = {task: since(at, now) or 0.0 for task, at in schedule.last_begun(connection).items()}
    return Figures(now, found, breakers, begun, spaces)


def _read_queues(
    connection: Connection,
    now: int,
    samples_of: Mapping[int, Sequence[FigureSample]],
    only: int | None = None,
) -> tuple[tuple[QueueFigures, ...], tuple[OpenBreaker, ...]]:
    """
    Return the figures of all queues in order of their names, or of the queue *only*; and breakers.

    *now*: the catalog's time. *samples_of*: the latest samples by the ids of the queues.
    """
    ids = None if only is None else [only]
    known = {row.id: row for row in queues.states(connection, ids)}
    settings = {row.id: queues.settings_of(row.name, row.settings) for row in known.values()}
    rows = figures.read(connection, ids, counters=True)
    breakers = causes.read_breakers(connection, now, {row.id: row.name for row in known.values()})
    why = causes.read(
        connection,
        now,
        {queue_id: (row.name, settings[queue_id]) for queue_id, row in known.items()},
        breakers,
        {row.queue_id: row.main_in_flight or 0 for row in rows},
        only,
    )
    consumers = holders.connected(connection, now, ids)
    shovels = schedule.shovels_begun(connection, ids)
    overdue = retries.overdue(connection, now, ids)
    held_long = figures.stuck(connection, now, settings, everything=only is None)
    reading = any(row.root_id for row in known.values())
    behind = lags.sizes(connection, ids) if reading else {}
    paused_at = {row.name: row.paused_at for row in known.values() if row.paused_at is not None}
    who = acts.doers(connection, "pause", paused_at)
    torn: dict[int, list[Quarantined]] = defaultdict(list)
    damaged = [row.queue_id for row in rows if row.damaged]
    for each in quarantined.find(connection, damaged) if damaged else ():
        torn[each.queue_id].append(each)
    failed: dict[int, list[FailedJob]] = defaultdict(list)
    for job in jobs.failed(connection, 20, ids):
        failed[job.queue_id].append(FailedJob(job.id, job.error, job.ended_at is not None))
    used = _used_bytes(connection, settings)
    found = []
    for row in sorted(rows, key=lambda each: str(each.queue)):
        queue_id = row.queue_id
        about, past = known[queue_id], samples_of.get(queue_id, ())
        is_fresh = past and now / 1e6 - past[-1].taken_at <= LATEST_SECONDS
        latest = past[-1] if is_fresh else None
        rates: dict[str, Any] = {name: getattr(latest, name, None) for name in _RATES}
        concurrency = settings[queue_id].concurrency
        state = "active" if about.paused_at is None and concurrency else "paused"
        stuck, fired_at = held_long.get(queue_id, (0, None))
        figures_of = QueueFigures(
            id=queue_id,
            name=row.queue,
            state=state if about.deactivated_at is None else "deactivated",
            oldest_age=None if row.oldest_age is None else row.oldest_age / 1e6,
            longest_wait=None if row.longest_wait is None else row.longest_wait / 1e6,
            shards=about.shards,
            concurrency=concurrency,
            consumers=consumers.get(queue_id, 0),
            **{name: getattr(row, name) for name in _COUNTS},
            **rates,
            settings=settings[queue_id],
            paused_for=since(about.paused_at, now),
            paused_by=who.get(row.queue),
            overdue_for=since(overdue.get(queue_id), now),
            shovelled_before=since(shovels.get(queue_id), now),
            stuck=stuck,
            stuck_for=since(fired_at, now),
            quarantined=tuple(torn[queue_id]),
            causes=why[queue_id],
            lag=lags.of_row(row, behind.get(queue_id, 0)) if about.root_id else None,
            detached_for=since(about.detached_at or None, now),
            jobs=tuple(failed[queue_id]),
            samples=tuple(past),
            counts=row,
            used_bytes=used[queue_id],
        )
        found.append(figures_of)
    return tuple(found), breakers


def _used_bytes(connection: Connection, settings: Mapping[int, QueueSettings]) -> Counter[int]:
    """Return the bytes that count for the `max_bytes` of queues, by their ids; of rings, none."""
    bounded = [id for id, each in settings.items() if each.max_bytes and each.overflow != "ring"]
    used: Counter[int] = Counter()
    for row in amounts.sizes(connection, bounded) if bounded else ():
        counts = row.state != State.FIRED or not settings[row.queue_id].has_room_on_fire
        if row.magazine == Magazine.MAIN and counts:
            used[row.queue_id] += row.bytes
    return used


def read_samples(
    connection: Connection, queue_id: int, seconds: int, begin: int
) -> tuple[FigureSample, ...]:
    """Return the samples of a queue after a time, one for *seconds* each, oldest first."""
    found = samples.since(connection, seconds, begin, queue_id=queue_id)
    return tuple(map(_sample_of, found))


def _sample_of(row: Any) -> FigureSample:
    _, taken_at, *values = row
    return FigureSample(taken_at / 1e6, *values)
