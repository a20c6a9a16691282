"""Measure selectors over millions of waiting messages, and priorities.

python -m benchmarks.selection [--messages 10_000_000] [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from queue_core import Queue, Store

#: One in this many messages is rare: 0.1%.
RARE = 1000
#: Messages of one firing, if there are enough rare ones for each round.
TAKEN = 1000
#: Messages of one day.
DAY = 100_000
MILLION = 1_000_000
#: Messages of one load.
BLOCK = 500_000

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64()),
        pa.field("day", pa.int32()),
        pa.field("kind", pa.string()),
        pa.field("priority", pa.int32()),
        pa.field("urgency", pa.float64()),
        pa.field("payload", pa.binary()),
    ]
)


def rows(first: int, count: int) -> pa.Table:
    """Return messages of 100 bytes; every `RARE`th is rare, a new day begins every `DAY`."""
    numbers = np.arange(first, first + count)
    chance = np.random.default_rng(first)
    return pa.table(
        [
            numbers,
            (numbers // DAY).astype(np.int32),
            pa.array(np.where(numbers % RARE == 7, "rare", "usual")),
            chance.integers(0, 10, count, dtype=np.int32),
            chance.random(count),
            pa.repeat(pa.scalar(b"x" * 60), count),
        ],
        schema=SCHEMA,
    )


def fill(queue: Queue, messages: int) -> None:
    """Load messages, some at a time."""
    for first in range(0, messages, BLOCK):
        queue.load(rows(first, min(BLOCK, messages - first)))


class Selections:
    """Firings from a store, and the time that each kind took."""

    def __init__(self, rounds: int, taken: int) -> None:
        self._rounds = rounds
        self._taken = taken
        self.times: dict[str, list[float]] = {}

    def fire(self, label: str, queue: Queue, *, none: bool = False, **wanted: str) -> None:
        """Fire repeatedly; the time to delete the fired messages does not count."""
        expected = 0 if none else self._taken
        for _ in range(self._rounds):
            begin = time.perf_counter()
            firing = queue.fire(self._taken, **wanted)  # type: ignore[arg-type]
            self.times.setdefault(label, []).append((time.perf_counter() - begin) * 1e3)
            assert len(firing) == expected, f"{label}: {len(firing)}"
            if expected:
                queue.delete(firing)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "--messages", type=lambda text: int(text.replace("_", "")), default=10**7
    )
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    # The firings before the rare ones take some of these along.
    taken = min(TAKEN, given.messages // RARE // (given.rounds + 1))
    if taken < 1:
        arguments.error(f"--messages must be at least {RARE * (given.rounds + 1):,}")
    measured = Selections(given.rounds, taken)
    with (
        tempfile.TemporaryDirectory(prefix="ignis-selection-", dir=".") as folder,
        Store.open(folder) as store,
    ):
        many = store.create_queue(
            "many", SCHEMA, message_expiry=None, attributes=["kind", "day", "number"]
        )
        fill(many, given.messages)
        # The last day that is complete, if there is one.
        last = max(given.messages // DAY - 1, 0)
        measured.fire("first come, first served", many)
        measured.fire("rare, spread evenly", many, selector="kind = 'rare'")
        measured.fire("one day of many", many, selector=f"day = {last}")
        measured.fire("ruled out by statistics", many, none=True, selector="day = -1")
        some = store.create_queue("some", SCHEMA, message_expiry=None, priority="priority")
        fill(some, MILLION)
        measured.fire("ten priorities", some)
        measured.fire("ordered by a double", some, order_by="urgency DESC")
        aging = store.create_queue(
            "aging", SCHEMA, message_expiry=None, priority="urgency", priority_aging=60.0
        )
        fill(aging, MILLION)
        measured.fire("priorities that age", aging)
    table = Table(title=f"Firing {taken:,} of {given.messages:,} messages; orders: of {MILLION:,}")
    for column in ("firing", "first ms", "median ms", "worst ms"):
        table.add_column(column, justify="left" if column == "firing" else "right")
    for label, times in measured.times.items():
        middle = statistics.median(times)
        table.add_row(label, f"{times[0]:.1f}", f"{middle:.1f}", f"{max(times):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
