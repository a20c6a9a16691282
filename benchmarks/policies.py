"""Measure smart loads by policy: 100,000 messages against 1,000,000 queued ones of 100,000 keys.

    python -m benchmarks.policies

Each policy has its own queue, whose messages came in ten loads. The benchmark also measures a plain
load of the same messages, and a smart load of one message.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

from queue_core import Queue, Store

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("kind", pa.string()),
        ("amount", pa.int64()),
        ("value", pa.float64()),
        ("note", pa.string()),
    ]
)
POLICIES = (
    None,
    "latest",
    "drop_duplicates(kind, amount)",
    "drop_duplicates",
    "merge(sum(amount), last(note), max(value))",
    "merge_adjacent(sum(amount), last(note))",
    "annihilate(kind = 'on', kind = 'off')",
    "confirm(kind = 'off')",
)


def messages(count: int, keys: int, seed: int) -> pa.Table:
    """Return *count* messages of random keys."""
    random = np.random.default_rng(seed)
    numbers = random.integers(0, keys, count)
    return pa.table(
        {
            "key": [f"key-{number}" for number in numbers.tolist()],
            "kind": pa.array(["on", "off"]).take(pa.array(random.integers(0, 2, count))),
            "amount": random.integers(0, 3, count),
            "value": random.random(count),
            "note": pa.array(
                ["a note of some forty characters for " + "each" for _ in range(count)]
            ),
        },
        schema=SCHEMA,
    )


def queue_of(store: Store, name: str, queued: int, keys: int) -> Queue:
    """Return a new queue of *queued* waiting messages."""
    queue = store.create_queue(name, SCHEMA, shards=8, key="key", message_expiry=None)
    for number in range(10):
        queue.load(messages(queued // 10, keys, number))
    return queue


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--queued", type=int, default=1_000_000)
    arguments.add_argument("--new", type=int, default=100_000)
    arguments.add_argument("--keys", type=int, default=100_000)
    given = arguments.parse_args()
    new, one = messages(given.new, given.keys, 99), messages(1, given.keys, 98)
    table = Table(title=f"{given.new:,} messages against {given.queued:,} of {given.keys:,} keys")
    table.add_column("policy")
    for column in ("seconds", "loaded", "one more, ms"):
        table.add_column(column, justify="right")
    with (
        tempfile.TemporaryDirectory(prefix="ignis-policies-") as folder,
        Store.open(folder) as store,
    ):
        for number, policy in enumerate(track(POLICIES, transient=True)):
            queue = queue_of(store, f"queue_{number}", given.queued, given.keys)
            ids, seconds = timed(queue, new, policy)
            _, single = timed(queue, one, policy)
            loaded = f"{len(ids) - ids.null_count:,}"
            table.add_row(policy or "none", f"{seconds:.2f}", loaded, f"{1e3 * single:.1f}")
    Console().print(table)


def timed(queue: Queue, rows: pa.Table, policy: str | None) -> tuple[pa.Array, float]:
    """Load messages; return their ids and the seconds that it took."""
    began = time.perf_counter()
    ids = queue.load(rows, policy=policy)
    return ids, time.perf_counter() - began


if __name__ == "__main__":
    main()
