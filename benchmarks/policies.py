"""Smart loads: 100,000 messages against 1,000,000 queued ones of 100,000 keys, by each policy.

    python -m benchmarks.policies --path /some/folder

Each policy has a queue of its own, in which the queued messages were loaded in ten loads. It also
tells what a plain load of the same messages takes, and a smart load of one message.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

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
    """So many messages of random keys."""
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
    """A queue in which so many messages wait."""
    queue = store.create_queue(name, SCHEMA, shards=8, key="key", message_expiry=None)
    for number in range(10):
        queue.load(messages(queued // 10, keys, number))
    return queue


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=100_000)
    chosen = parser.parse_args()
    new, one = messages(chosen.new, chosen.keys, 99), messages(1, chosen.keys, 98)
    with Store.open(chosen.path) as store:
        for number, policy in enumerate(POLICIES):
            queue = queue_of(store, f"queue_{number}", chosen.queued, chosen.keys)
            begin = time.perf_counter()
            ids = queue.load(new, policy=policy)
            took = time.perf_counter() - begin
            begin = time.perf_counter()
            queue.load(one, policy=policy)
            single = time.perf_counter() - begin
            print(
                f"{policy or 'no policy':<45} {took:6.2f} s, {len(ids) - ids.null_count:7} loaded; "
                f"one more: {single * 1e3:6.1f} ms"
            )


if __name__ == "__main__":
    main()
