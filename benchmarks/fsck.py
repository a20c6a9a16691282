"""How long `ignis fsck` takes for a million slices: ``python -m benchmarks.fsck [slices]``.

A thousand segments of a thousand messages each in files, in 8 shards, whose messages are each in a
slice of their own, as selectors leave them. Prints the median of three checks.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
from sqlalchemy import delete, insert, select

from queue_core import Store
from queue_core.catalog.tables import slices
from queue_core.segments import stager

SLICES = 1_000_000
#: Messages of a segment.
ROWS = 1_000
ROUNDS = 3


def fill(store: Store, count: int) -> None:
    """Load messages, and cut each slice into slices of one message."""
    queue = store.create_queue("many", pa.schema([("number", pa.int64())]), shards=8)
    with mock.patch.object(stager, "INLINE_BYTES", 0):
        for first in range(0, count, ROWS):
            queue.load(pa.table({"number": np.arange(first, first + ROWS)}))
    with store.catalog.read() as connection:
        whole = connection.execute(select(slices)).mappings().all()
    for row in whole:
        cut(store, dict(row))


def cut(store: Store, row: dict) -> None:
    """Replace a slice by slices of one message."""
    number = row.pop("id")
    # The insert computes it.
    del row["seal"]
    span = range(row["row_stop"] - row["row_start"])
    parts = [
        row
        | {"position": row["position"] + at, "row_start": row["row_start"] + at}
        | {"row_stop": row["row_start"] + at + 1, "count": 1}
        for at in span
    ]

    def work(connection) -> None:
        connection.execute(delete(slices).where(slices.c.id == number))
        connection.execute(insert(slices), parts)

    store.catalog.write(work)


def main() -> None:
    """Fill a store, check it some times, and print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SLICES
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store") as store:
        fill(store, count)
        times = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            found = store.admin.fsck()
            assert found.num_rows == 0, found.to_pylist()[:3]
            times.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        store.admin.fsck(deep=True)
        median, deep = float(np.median(times)), time.perf_counter() - begun
        print(f"{count:,} slices: {median:.2f} s, {max(times):.2f} at most; with deep {deep:.2f} s")


if __name__ == "__main__":
    main()
