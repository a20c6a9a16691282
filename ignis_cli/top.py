"""`ignis top`: messages and rates of the queues of a store, from its counters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from queue_core import Store

_COLUMNS = ["queue", "waiting", "in_flight", "sidelined", "damaged"]
# Counters of main, by the name of their rate.
_RATES = {
    "loaded/s": "loaded",
    "fired/s": "fired",
    "deleted/s": "deleted",
    "failed/s": "sidelined",
}


@dataclass(frozen=True, slots=True)
class TopReading:
    """The queues at one moment, with their counters since creation."""

    #: Seconds of a monotonic clock; only differences between samples matter.
    at: float
    #: The view of queues.
    queues: pa.Table
    #: The counters of each queue's main magazine: one dict per queue, by its name.
    counters: dict[str, dict[str, int]]


def sample(store: Store) -> TopReading:
    """Take a sample now."""
    shards = store.view("shards")
    main = shards.filter(pc.equal(shards.column("magazine"), "main"))
    summed = main.group_by("queue").aggregate([(name, "sum") for name in _RATES.values()])
    counters = {
        row["queue"]: {name: row[f"{name}_sum"] for name in _RATES.values()}
        for row in summed.to_pylist()
    }
    return TopReading(time.monotonic(), store.view("queues"), counters)


def frame(before: TopReading | None, now: TopReading) -> pa.Table:
    """
    Return one row per queue: its messages, and the rates per second since *before*.

    Rates are null in the first frame, and for a queue that *before* does not have.
    """
    shown = now.queues.select(_COLUMNS)
    for rate, counter in _RATES.items():
        values = [_rate(before, now, queue, counter) for queue in shown["queue"].to_pylist()]
        shown = shown.append_column(rate, pa.array(values, pa.float64()))
    return shown


def frames(store: Store, interval: float) -> Iterator[pa.Table]:
    """Yield a frame at once, and then one every *interval* seconds, without end."""
    before = None
    while True:
        now = sample(store)
        yield frame(before, now)
        before = now
        time.sleep(interval)


def _rate(before: TopReading | None, now: TopReading, queue: str, counter: str) -> float | None:
    if before is None or queue not in before.counters or queue not in now.counters:
        return None
    grown = now.counters[queue][counter] - before.counters[queue][counter]
    return round(grown / (now.at - before.at), 1)
