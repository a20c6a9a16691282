"""Readings: the values of all metrics, from one state of the catalog.

It reads counters and not messages, so a scrape is cheap however many messages wait. A figure that
is not known has no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import breakers, figures, stuck
from queue_core.catalog.records.pauses import is_paused
from queue_core.catalog.slices import quarantined
from queue_core.values.model import Magazine
from queue_core.watching import metric as m
from queue_core.watching import present
from queue_core.watching.metric import Metric

#: The values of a metric's labels.
Labels: TypeAlias = tuple[str, ...]
#: For each metric, values of its labels and the number.
Readings: TypeAlias = dict[Metric, list[tuple[Labels, float]]]


def read(catalog: Catalog) -> Readings:
    """Read all metrics of a store."""
    found: Readings = {metric: [] for metric in m.METRICS}
    with catalog.read() as connection:
        now = dialect.read_clock(connection)
        _of_queues(connection, found, now)
        for holder in present.read_holders(connection, now):
            found[m.HELD].append(((holder.name,), holder.held))
            found[m.HEARTBEAT_AGE] += _known([(holder.name,)], [holder.silent_for])
        for row in breakers.opened(connection):
            found[m.OPEN_BREAKERS].append(((row["name"],), 1))
        for task, age in present.read_tasks(connection, now).items():
            found[m.TASK_AGE].append(((task,), age))
    return found


def flat(catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Yield each value with the name of its metric in Prometheus and its labels."""
    for metric, values in read(catalog).items():
        name = f"{metric.prometheus}_total" if metric.counts else metric.prometheus
        for labels, value in values:
            named = dict(zip(metric.labels, labels, strict=True))
            yield {"metric": name, "labels": named, "value": value}


def _of_queues(connection: Connection, found: Readings, now: int) -> None:
    states = queues.states(connection)
    held_long = stuck.read(connection, now, states, everything=True)
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
        messages = {queue_id: long.messages for queue_id, long in held_long.items()}
        found[m.STUCK] += [
            (label, messages.get(queue_id, 0))
            for label, queue_id in zip(labels, of["queue_id"], strict=True)
        ]
        ages = [None if age is None else age / 1e6 for age in of["oldest_age"]]
        found[m.OLDEST_AGE] += _known(labels, ages)
        for magazine in Magazine:
            both = [(name, magazine.name.lower()) for name in of["queue"]]
            for name, metric in m.COUNTERS.items():
                known = _known(both, of[figures.label_of(name, magazine)])
                always = magazine is Magazine.MAIN and name in m.ALWAYS
                found[metric] += [each for each in known if each[1] or always]
    for queue in states:
        found[m.PAUSED].append(((queue.name,), int(is_paused(queue))))


def _known(labels: Sequence[Labels], values: Sequence[float | None]) -> list[tuple[Labels, float]]:
    return [
        (label, value) for label, value in zip(labels, values, strict=True) if value is not None
    ]
