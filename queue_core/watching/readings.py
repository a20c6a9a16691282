"""Readings: the values of all metrics, from one state of the catalog.

It reads counters and not messages, so a scrape is cheap however many messages wait. A figure that
is not known has no value.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol, TypeAlias

from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import (
    breakers,
    figures,
    jobs,
    tallies,
    timings,
    token_buckets,
)
from queue_core.catalog.slices import amounts, quarantined
from queue_core.segments.storage import Storage
from queue_core.support.disk import disk_of
from queue_core.values import buckets
from queue_core.values.histogram import SHOWN, shown
from queue_core.values.limits import Limit
from queue_core.values.model import Magazine, State
from queue_core.values.settings import QueueSettings
from queue_core.watching import metric as m
from queue_core.watching import present, space
from queue_core.watching.metric import Metric
from queue_core.watching.problems import find

#: The bounds of buckets, as Prometheus writes them.
BOUND_TEXTS = (*map(str, SHOWN), "+Inf")
#: The values of a metric's labels.
Labels: TypeAlias = tuple[str, ...]
#: For each metric, values of its labels and the number; of a histogram, how many messages took at
#: most each of the `SHOWN` seconds, how many there are, and all their seconds.
Readings: TypeAlias = dict[Metric, list[tuple[Labels, Any]]]


class AnyStore(Protocol):
    """A `queue_core.Store`, which is above this module."""

    @property
    def catalog(self) -> Catalog:
        """The catalog."""

    @property
    def storage(self) -> Storage:
        """The storage."""


def read(store: AnyStore) -> Readings:
    """Read all metrics of a store."""
    found: Readings = {metric: [] for metric in m.METRICS}
    spaces = space.read(store.catalog, store.storage)
    with store.catalog.read() as connection:
        now = dialect.read_clock(connection)
        seen = present.read_within(connection, now, spaces)
        _of_queues(connection, found, now, seen)
        for holder in present.read_holders(connection, now):
            found[m.HELD].append(((holder.name,), holder.held))
            found[m.HEARTBEAT_AGE] += _known([(holder.name,)], [holder.silent_for])
        for row in breakers.opened(connection):
            found[m.OPEN_BREAKERS].append(((row["name"],), 1))
        problems = find(seen)
        found[m.PROBLEMS] += Counter((each.queue or "", each.kind) for each in problems).items()
        for task, age in seen.tasks.items():
            found[m.TASK_AGE].append(((task,), age))
        for queue, state, count in jobs.by_state(connection):
            found[m.JOBS].append(((queue, state), count))
        for tally in tallies.read(connection):
            found[m.FAILURES].append(((tally.queue, tally.label), tally.total))
        for timing in timings.read(connection):
            measured = timings.measured(timing)
            counted = (shown(measured.counts), measured.seconds)
            if timing.name == timings.WAITING:
                found[m.WAITING_SECONDS].append(((timing.queue,), counted))
            else:
                found[m.HANDLING_SECONDS].append(((timing.queue, timing.label), counted))
        found[m.BUILD].append(((version("ignis-queue"), dialect.of(connection).name), 1))
    for place, path in (("catalog", store.catalog.file), ("storage", store.storage.folder)):
        disk = None if path is None else disk_of(path)
        if disk is not None:
            found[m.FREE_BYTES].append(((place,), disk.free))
            found[m.DISK_BYTES].append(((place,), disk.size))
    return found


def flat(store: AnyStore) -> Iterator[dict[str, Any]]:
    """Yield each value with the name of its metric in Prometheus and its labels."""
    for metric, values in read(store).items():
        name = f"{metric.prometheus}_total" if metric.counts else metric.prometheus
        for labels, value in values:
            named = dict(zip(metric.labels, labels, strict=True))
            for end, more, number in parts(metric, value):
                yield {"metric": name + end, "labels": named | dict(more), "value": number}


def parts(metric: Metric, value: Any) -> Iterator[tuple[str, tuple[tuple[str, str], ...], float]]:
    """Yield the ends of names, the more labels and the numbers of a value in Prometheus."""
    if metric not in m.HISTOGRAMS:
        yield "", (), value
        return
    counts, seconds = value
    for bound, count in zip(BOUND_TEXTS, counts, strict=True):
        yield "_bucket", (("le", bound),), count
    yield "_count", (), counts[-1]
    yield "_sum", (), seconds


def _of_queues(connection: Connection, found: Readings, now: int, seen: present.Figures) -> None:
    states = queues.states(connection)
    shown_of = {each.name: each for each in seen.queues}
    rows = figures.read_counters(connection)
    if rows:
        # A store may have many queues: by column, which is faster than by row.
        of = dict(zip(rows[0]._fields, zip(*rows, strict=True), strict=True))
        labels = [(name,) for name in of["queue"]]
        for name, metric in m.DEPTHS.items():
            found[metric] += _known(labels, of[name])
        damaged = [id for id, count in zip(of["queue_id"], of["damaged"], strict=True) if count]
        for one in quarantined.find(connection, damaged) if damaged else ():
            found[m.DAMAGED].append(((one.queue, one.name), one.messages))
        found[m.STUCK] += [((name,), shown_of[name].stuck) for name in of["queue"]]
        for name, metric in (("oldest_age", m.OLDEST_AGE), ("longest_wait", m.LONGEST_WAIT)):
            ages = [None if age is None else age / 1e6 for age in of[name]]
            found[metric] += _known(labels, ages)
        for magazine in Magazine:
            both = [(name, magazine.name.lower()) for name in of["queue"]]
            for name, metric in m.COUNTERS.items():
                known = _known(both, of[figures.label_of(name, magazine)])
                always = magazine is Magazine.MAIN and name in m.ALWAYS
                found[metric] += [each for each in known if each[1] or always]
    present_of = {row.queue_id: row for row in rows}
    sizes: dict[int, dict[tuple[Magazine, State], int]] = defaultdict(dict)
    for row in amounts.sizes(connection):
        sizes[row.queue_id][Magazine(row.magazine), State(row.state)] = row.bytes
    spent = token_buckets.of_queues(connection)
    for queue in states:
        name, bytes_of = queue.name, sizes[queue.id]
        settings = queues.settings_of(name, queue.settings)
        found[m.PAUSED].append(((name,), int(shown_of[name].is_paused)))
        found[m.CONSUMERS].append(((name,), shown_of[name].consumers or 0))
        for magazine in Magazine:
            size = sum(count for (place, _), count in bytes_of.items() if place is magazine)
            if size:
                found[m.QUEUE_BYTES].append(((name, magazine.name.lower()), size))
        if settings.max_size is not None:
            found[m.MAX_MESSAGES].append(((name,), settings.max_size))
        if present_of[queue.id].waiting is None:
            continue
        held = Held.of(present_of[queue.id], bytes_of)
        found[m.FILL] += _known([(name,)], [held.fill(settings)])
        for limit in settings.limits:
            if limit.column is None:
                allowed = held.allowed(limit, spent.get(queue.id), now)
                found[m.LIMIT_MESSAGES].append(((name, str(limit)), allowed))


class Held(NamedTuple):
    """Messages and bytes in main of a queue."""

    #: All messages, and those that are not in flight.
    messages: int
    at_rest: int
    bytes: int
    bytes_at_rest: int

    @staticmethod
    def of(row: Any, sizes: Mapping[tuple[Magazine, State], int]) -> Held:
        """Return them from a row of the counters, and bytes by magazine and state."""
        here = {state: count for (place, state), count in sizes.items() if place is Magazine.MAIN}
        size = sum(here.values())
        return Held(*figures.in_main(row), size, size - here.get(State.FIRED, 0))

    def fill(self, settings: QueueSettings) -> float | None:
        """Return the part of the bounds that is used; None for a ring, or without a bound."""
        used = (self.messages, self.bytes)
        if settings.has_room_on_fire:
            used = (self.at_rest, self.bytes_at_rest)
        bounds = (settings.max_size, settings.max_bytes)
        parts = [part / most for part, most in zip(used, bounds, strict=True) if most]
        return max(parts, default=None) if settings.overflow != "ring" else None

    def allowed(self, limit: Limit, spent_until: int | None, now: int) -> int:
        """Return how many messages a limit of the whole queue allows to be fired."""
        most = [buckets.tokens(limit, spent_until, now)] if limit.per_second is not None else []
        if limit.in_flight is not None:
            most.append(max(limit.in_flight - (self.messages - self.at_rest), 0))
        return min(most)


def _known(labels: Sequence[Labels], values: Sequence[float | None]) -> list[tuple[Labels, float]]:
    return [
        (label, value) for label, value in zip(labels, values, strict=True) if value is not None
    ]
