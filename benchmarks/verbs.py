"""Measure firing and settling: 100,000 messages of 32 shards, of which 1% fail.

It also measures to sweep, and then to shovel, a million messages.

python -m benchmarks.verbs [--rounds 20]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from queue_core import Store
from queue_core.segments.reader import read_table
from queue_core.selection.request import FireRequest
from queue_core.values.ids import IdSet
from queue_core.values.model import TicketRange
from queue_core.values.outcomes import Settlement
from queue_core.verbs.fire import fire
from queue_core.verbs.read_tickets import read_tickets

MESSAGES = 100_000
SHARDS = 32
FAILING = 0.01
MILLION = 1_000_000

Result = TypeVar("Result")


def timed(times: dict[str, list[float]], label: str, work: Callable[[], Result]) -> Result:
    """Run *work* and note the milliseconds that it took."""
    begin = time.perf_counter()
    result = work()
    times.setdefault(label, []).append((time.perf_counter() - begin) * 1e3)
    return result


class Verbs:
    """One queue, and the time that each verb took."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows = pa.table(
            {
                "key": [f"k{number % 5000}" for number in range(MESSAGES)],
                "payload": [b"x" * 100] * MESSAGES,
            }
        )
        self._queue = store.create_queue("q", self._rows.schema, shards=SHARDS, key="key")
        self._consumer = store.consumer("benchmark")
        self._chance = np.random.default_rng(7)
        self.times: dict[str, list[float]] = {}

    def load(self) -> None:
        """Load all messages once."""
        timed(self.times, "load", lambda: self._queue.load(self._rows))

    def handle(self) -> None:
        """Fire, read and settle the messages of one load."""
        catalog, who = self._store.catalog, self._consumer
        wanted = FireRequest(queue_ids=(self._queue.info.id,), max_messages=MESSAGES)
        ticket = timed(self.times, "fire", lambda: fire(catalog, who, wanted).ticket)
        assert ticket is not None
        assert ticket.messages == MESSAGES
        queues, uri = [self._queue.info], self._store.storage.uri
        reading = timed(
            self.times,
            "plan",
            lambda: read_tickets(catalog, uri, queues, TicketRange.of(ticket)),
        )
        ids = read_table(reading, ["_message_id"]).column("_message_id").to_numpy()
        failed = self._chance.random(MESSAGES) < FAILING
        outcome = Settlement(deleted=IdSet.of(ids[~failed]), sidelined=IdSet.of(ids[failed]))
        assert timed(self.times, "settle", lambda: self._queue.settle(outcome, who)) == MESSAGES

    def rescue(self) -> None:
        """Sweep and shovel a million messages that a dead consumer had fired."""
        left = self._queue.browse().num_rows
        for _ in range(MILLION // MESSAGES - left // MESSAGES):
            self._queue.load(self._rows)
        wanted = FireRequest(queue_ids=(self._queue.info.id,))
        assert fire(self._store.catalog, self._store.consumer("dead"), wanted).ticket is not None
        moved = timed(self.times, "sweep a million", lambda: self._queue.sweep(0))
        assert moved >= MILLION
        assert timed(self.times, "shovel a million", self._queue.shovel) == moved

    def shovel(self) -> None:
        """Shovel all failed messages."""
        failed = sum(self._queue.metadata().column("waiting").to_pylist())
        assert timed(self.times, "shovel", self._queue.shovel) == failed


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=20)
    given = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ignis-verbs-", dir=".") as folder,
        Store.open(folder) as store,
    ):
        verbs = Verbs(store)
        for step in (verbs.load, verbs.handle):
            for _ in range(given.rounds):
                step()
        verbs.shovel()
        verbs.rescue()
    table = Table(title=f"{MESSAGES:,} messages of {SHARDS} shards, {FAILING:.0%} failing")
    for column in ("verb", "median ms", "worst ms"):
        table.add_column(column, justify="left" if column == "verb" else "right")
    for label, taken in verbs.times.items():
        table.add_row(label, f"{statistics.median(taken):.1f}", f"{max(taken):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
