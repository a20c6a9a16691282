"""`ignis top`: messages and rates of the queues of a store, from its present figures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from operator import sub
from typing import Any, TypeAlias

import pyarrow as pa

from queue_core.catalog.database import Catalog
from queue_core.catalog.records import figures

_COUNTS = ("waiting", "in_flight", "sidelined", "damaged")
#: Counters of main since the queue was created, by the name of their rate.
_RATES = {
    "loaded_per_s": "all_loaded",
    "returned_per_s": "all_returned",
    "fired_per_s": "all_fired",
    "deleted_per_s": "all_deleted",
    "sidelined_per_s": "all_sidelined",
}
_SCHEMA = pa.schema(
    [
        ("queue", pa.string()),
        *((name, pa.int64()) for name in _COUNTS),
        *((name, pa.float64()) for name in _RATES),
    ]
)


#: Seconds of a monotonic clock, and the rows of `figures.read` by the ids of their queues, since
#: another queue may have the name of a dropped one.
TopReading: TypeAlias = tuple[float, Mapping[int, Any]]


def read(catalog: Catalog) -> TopReading:
    """Read the present figures."""
    with catalog.read() as connection:
        rows = sorted(figures.read(connection), key=lambda row: str(row.queue))
    return time.monotonic(), {row.queue_id: row for row in rows}


def frame(before: TopReading | None, now: TopReading) -> pa.Table:
    """
    Return one row per queue: its messages, and the rates per second since *before*.

    Rates are null in the first frame, and for a queue that *before* does not have.
    """
    rows = []
    began, former = before or (0.0, {})
    at, queues = now
    for key, queue in queues.items():
        row = {"queue": queue.queue} | {each: getattr(queue, each) for each in _COUNTS}
        for rate, counter in _RATES.items():
            counts = [getattr(each, counter, None) for each in (queue, former.get(key))]
            if None not in counts:
                row[rate] = round(sub(*counts) / (at - began), 1)
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
