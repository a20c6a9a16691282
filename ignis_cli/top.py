"""`ignis top`: messages and rates of the queues of a store, from its present figures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from operator import sub
from typing import Any, NamedTuple

import pyarrow as pa

from queue_core.catalog.database import Catalog
from queue_core.catalog.records import figures

_COUNTS = ("waiting", "in_flight", "sidelined", "damaged")
#: Counters of main since the queue was created, by the name of their rate.
_RATES = {
    "loaded/s": "all_loaded",
    "fired/s": "all_fired",
    "deleted/s": "all_deleted",
    "failed/s": "all_sidelined",
}
_SCHEMA = pa.schema(
    [
        ("queue", pa.string()),
        *((name, pa.int64()) for name in _COUNTS),
        *((name, pa.float64()) for name in _RATES),
    ]
)


class TopReading(NamedTuple):
    """The queues at one moment."""

    #: Seconds of a monotonic clock; only differences between readings matter.
    at: float
    #: Their figures, as `figures.read` returns them, by their names.
    queues: Mapping[str, Any]


def read(catalog: Catalog) -> TopReading:
    """Read the present figures."""
    with catalog.read() as connection:
        rows: Sequence[Any] = figures.read(connection)
    found = {row.queue: row for row in sorted(rows, key=lambda row: str(row.queue))}
    return TopReading(time.monotonic(), found)


def frame(before: TopReading | None, now: TopReading) -> pa.Table:
    """
    Return one row per queue: its messages, and the rates per second since *before*.

    Rates are null in the first frame, and for a queue that *before* does not have.
    """
    rows = []
    for name, queue in now.queues.items():
        row = {"queue": name} | {each: getattr(queue, each) for each in _COUNTS}
        earlier = before.queues.get(name) if before else None
        for rate, counter in _RATES.items():
            counts = [getattr(each, counter, None) for each in (queue, earlier)]
            if before and None not in counts:
                row[rate] = round(sub(*counts) / (now.at - before.at), 1)
        rows.append(row)
    return pa.Table.from_pylist(rows, _SCHEMA)


def frames(catalog: Catalog, interval: float) -> Iterator[pa.Table]:
    """Yield a frame at once, and then one every *interval* seconds, without end."""
    before = None
    while True:
        now = read(catalog)
        yield frame(before, now)
        before = now
        time.sleep(interval)
