"""Readings: the values of all metrics, from one state of the catalog.

It reads counters and not messages, so a scrape is cheap however many messages wait. A figure that
is not known has no value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import failures, figures, jobs, timings
from queue_core.catalog.slices import amounts
from queue_core.segments.storage import Storage
from queue_core.values.histogram import SHOWN, shown
from queue_core.values.model import Magazine
from queue_core.watching import metric as m
from queue_core.watching import present, space
from queue_core.watching.metric import Metric
from queue_core.watching.present import QueueFigures
from queue_core.watching.problems import find

#: The bounds of buckets, as Prometheus writes them.
BOUND_TEXTS = (*map(str, SHOWN), "+Inf")
#: The metrics that are figures of queues, by their names.
_FIGURES = m.DEPTHS | {
    "oldest_age": m.OLDEST_AGE,
    "longest_wait": m.LONGEST_WAIT,
    "stuck": m.STUCK,
    "consumers": m.CONSUMERS,
}
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
        _of_queues(connection, found, seen.queues)
        found[m.OPEN_BREAKERS] += [((breaker.name,), 1) for breaker in seen.breakers]
        problems = find(seen)
        found[m.PROBLEMS] += Counter((each.queue or "", each.kind) for each in problems).items()
        for task, age in seen.tasks.items():
            found[m.TASK_AGE].append(((task,), age))
        for queue, state, count in jobs.by_state(connection):
            found[m.JOBS].append(((queue, state), count))
        for tally in failures.by_kind(connection):
            found[m.FAILURES].append(((tally.queue, tally.label), tally.total))
        for timing in timings.read(connection):
            measured = timings.measured(timing)
            counted = (shown(measured.counts), measured.seconds)
            if timing.name == timings.WAITING:
                found[m.WAITING_SECONDS].append(((timing.queue,), counted))
            else:
                found[m.HANDLING_SECONDS].append(((timing.queue, timing.label), counted))
        found[m.BUILD].append(((version("ignis-queue"), dialect.of(connection).name), 1))
    for each in spaces:
        # Both may be on one disk.
        for place in each.of.split(" and "):
            found[m.DISK_BYTES].append(((place,), each.size))
            found[m.FREE_BYTES].append(((place,), each.free))
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


def _of_queues(connection: Connection, found: Readings, seen: Sequence[QueueFigures]) -> None:
    labels = [(queue.name,) for queue in seen]
    # A store may have many queues: by column, which is faster than by row.
    for name, metric in _FIGURES.items():
        found[metric] += _known(labels, [getattr(queue, name) for queue in seen])
    readers = [(queue, queue.lag) for queue in seen if queue.lag is not None]
    of_readers = [(queue.name,) for queue, _ in readers]
    for unit, metric in m.BEHIND.items():
        found[metric] += _known(of_readers, [getattr(lag, unit) for _, lag in readers])
    ended = [int(queue.detached_for is not None) for queue, _ in readers]
    left = [
        None if end else lag.headroom(queue.settings.budget)
        for (queue, lag), end in zip(readers, ended, strict=True)
    ]
    found[m.HEADROOM] += _known(of_readers, left)
    found[m.DETACHED] += _known(of_readers, ended)
    found[m.PAUSED] += [((queue.name,), int(queue.is_paused)) for queue in seen]
    found[m.MAX_MESSAGES] += _known(labels, [queue.settings.max_size for queue in seen])
    for magazine in Magazine:
        both = [(queue.name, magazine.name.lower()) for queue in seen]
        for name, metric in m.COUNTERS.items():
            counter = attrgetter(figures.label_of(name, magazine))
            known = _known(both, [counter(queue.counts) for queue in seen])
            always = magazine is Magazine.MAIN and name in m.ALWAYS
            found[metric] += [each for each in known if each[1] or always]
    held: Counter[str] = Counter()
    silent_for: dict[str, float | None] = {}
    for queue in seen:
        for holder in queue.causes.holders:
            held[holder.name] += holder.held
            silent_for[holder.name] = holder.silent_for
    found[m.HELD] += [((name,), count) for name, count in sorted(held.items())]
    consumers = [(name,) for name in silent_for]
    found[m.HEARTBEAT_AGE] += _known(consumers, [*silent_for.values()])
    sizes: Counter[tuple[int, int]] = Counter()
    for row in amounts.sizes(connection):
        sizes[row.queue_id, row.magazine] += row.bytes
    for queue in seen:
        for magazine in Magazine:
            if size := sizes[queue.id, magazine]:
                found[m.QUEUE_BYTES].append(((queue.name, magazine.name.lower()), size))
        for one in queue.quarantined:
            found[m.DAMAGED].append(((one.queue, one.name), one.messages))
        if queue.waiting is not None:
            found[m.FILL] += _known([(queue.name,)], [_fill(queue)])
            for each in queue.causes.limits:
                found[m.LIMIT_MESSAGES].append(((queue.name, str(each.limit)), each.allowed))


def _fill(queue: QueueFigures) -> float | None:
    """Return the part of the bounds that is used; None for a ring, or without a bound."""
    bounds = (queue.settings.max_size, queue.settings.max_bytes)
    if queue.settings.overflow == "ring" or not any(bounds):
        return None
    used = (queue.used or 0, queue.used_bytes)
    return max(part / most for part, most in zip(used, bounds, strict=True) if most)


def _known(labels: Sequence[Labels], values: Sequence[float | None]) -> list[tuple[Labels, float]]:
    return [
        (label, value) for label, value in zip(labels, values, strict=True) if value is not None
    ]
