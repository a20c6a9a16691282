"""What verbs cost in stores of very different sizes: ``python -m benchmarks.sizes [PART ...]``.

Each part lets one size grow: *waiting* messages, *slices*, *queues*, *shards*, *tenants*. *whole*
compares a million messages in 100 slices of one queue with a hundred million in a million slices of
1,000 queues. The stores of a part are open at once, and take turns in each round, so that other
work of the machine affects all alike. Costs are CPU milliseconds, of this process and of the
server, and statements; the medians of the rounds.

    python -m benchmarks.sizes                      # SQLite
    python -m benchmarks.sizes --postgresql whole   # a server of its own
    python -m benchmarks.sizes --report             # only the table and the picture, again

Figures are kept in out/bench/sizes.jsonl, so parts can be measured one by one. The table is
printed; with ``--publish``, it is written to docs/scale.md, and the picture beside it. Stores are
made by copying rows of the catalog; only those of tenants are loaded.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks import size_report
from benchmarks.arguments import add_names
from benchmarks.costs import Costs, Meter
from benchmarks.fabricated import SCHEMA, SHARDS, make, multiply
from benchmarks.peers.servers import Servers
from queue_core import Queue, Settlement, Store
from queue_core.values.ids import IdSet

ROUNDS = 9
#: Messages of the firings.
COUNT = 100
_FOLDER = Path(__file__).parents[1] / "out" / "bench"
_DOCS = Path(__file__).parents[1] / "docs"


class Shape(NamedTuple):
    """The size of a store: each queue has so many slices of so many messages."""

    queues: int = 1
    slices: int = 1_000
    each: int = 100
    shards: int = SHARDS
    tenants: int = 0


#: The stores of each part, by the size that grows.
PARTS: dict[str, dict[int, Shape]] = {
    "waiting": {
        10_000 * count: Shape(slices=count, each=10_000) for count in (1, 10, 100, 1_000, 10_000)
    },
    "slices": {count: Shape(slices=count) for count in (1, 100, 10_000, 1_000_000)},
    "queues": {
        count: Shape(queues=count, slices=10, shards=8) for count in (1, 10, 100, 1_000, 10_000)
    },
    "shards": {count: Shape(slices=1_024, shards=count) for count in (1, 8, 32, 128, 512)},
    "tenants": {count: Shape(tenants=count) for count in (1, 10, 100, 1_000)},
    "whole": {
        1_000_000: Shape(slices=100, each=10_000),
        100_000_000: Shape(queues=1_000, slices=1_000),
    },
}
_TENANTS = pa.schema([("number", pa.int32()), ("tenant", pa.int32())])


class Subject:
    """A store of one size, and its verbs."""

    def __init__(self, store: Store, shape: Shape) -> None:
        self.meter = Meter(store)
        self._store = store
        self._queue, self._empty = _filled(store, shape), _empty(store, shape)
        self._who = store.consumer("benchmark")
        self._rows = pa.table({"number": pa.array(np.arange(1_000), pa.int32())})
        if shape.tenants:
            self._rows = _of_tenants(shape.tenants, 1_000)
        self._fired = self._queue.fire(1, consumer=self._who)

    def verbs(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the verbs in the order in which they are called, each with its name."""
        queue = self._queue
        yield "load 1", lambda: queue.load(self._rows[:1])
        yield "load 1,000", lambda: queue.load(self._rows)
        yield f"fire and read {COUNT}", self._fire
        yield f"settle {COUNT}, of which 1 fails", self._settle
        yield "shovel 1", queue.shovel
        yield "peek at 10", lambda: queue.peek(10)
        yield "metadata()", queue.metadata
        yield "look into an empty queue", lambda: self._empty.fire(1, consumer=self._who)

    def _fire(self) -> None:
        self._fired = self._queue.fire(COUNT, consumer=self._who)
        assert self._fired.messages.num_rows == COUNT

    def _settle(self) -> None:
        ids = self._fired.ids.to_numpy()
        outcome = Settlement(deleted=IdSet.of(ids[1:]), sidelined=IdSet.of(ids[:1]))
        assert self._queue.settle(outcome, self._who) == COUNT


def _filled(store: Store, shape: Shape) -> Queue:
    if not shape.tenants:
        queue = make(store, "queue", shape.slices, shape.each, shards=shape.shards, retry=None)
        multiply(store, queue, shape.queues)
        return queue
    queue = store.create_queue(
        "queue", _TENANTS, shards=shape.shards, key="tenant", fair_by="tenant", retry=None
    )
    for _ in range(10):
        queue.load(_of_tenants(shape.tenants, shape.slices * shape.each // 10))
    return queue


def _of_tenants(tenants: int, count: int) -> pa.Table:
    numbers = np.arange(count, dtype=np.int32)
    return pa.table([numbers, numbers % tenants], schema=_TENANTS)


def _empty(store: Store, shape: Shape) -> Queue:
    return store.create_queue("empty", SCHEMA, shards=shape.shards, key="number")


def measure(part: str, addresses: Callable[[int], dict[str, str]]) -> list[size_report.Figure]:
    """Measure the verbs in all stores of a part, which take turns."""
    with ExitStack() as stack:
        subjects = {}
        for at, (size, shape) in enumerate(PARTS[part].items()):
            begun = time.perf_counter()
            store = stack.enter_context(Store.open(**addresses(at)))
            subjects[size] = Subject(store, shape)
            print(f"{part} {size:,}: made in {time.perf_counter() - begun:.1f} s", flush=True)
        times: dict[tuple[int, str], list[Costs]] = {}
        gc.collect()
        gc.freeze()
        # The first rounds compile statements and fill caches.
        for number in range(-2, ROUNDS):
            for size, subject in subjects.items():
                for verb, work in subject.verbs():
                    gc.collect()
                    before = subject.meter.now()
                    work()
                    spent = subject.meter.since(before)
                    if number >= 0:
                        times.setdefault((size, verb), []).append(spent)
        return [
            size_report.Figure(
                part=part,
                size=size,
                verb=verb,
                milliseconds=statistics.median(each.cpu for each in of),
                statements=int(statistics.median(each.statements for each in of)),
            )
            for (size, verb), of in times.items()
        ]


@contextmanager
def _places(postgresql: bool, part: str) -> Iterator[Callable[[int], dict[str, str]]]:
    """Yield the addresses of new stores, which are gone at the end."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="sizes-", dir=_FOLDER))
    try:
        with Servers(folder) as servers:

            def address(number: int) -> dict[str, str]:
                if not postgresql:
                    return {"path": str(folder / f"store-{number}")}
                url = servers.catalog(f"{part}_{number}")
                return {"catalog": url, "storage": str(folder / f"data-{number}")}

            yield address
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure, then print and write what was asked for."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_names(arguments, "parts", PARTS)
    arguments.add_argument("--postgresql", action="store_true", help="on a server of its own")
    arguments.add_argument("--report", action="store_true", help="measure nothing")
    arguments.add_argument("--publish", action="store_true", help="write into docs")
    given = arguments.parse_args()
    catalog = "PostgreSQL" if given.postgresql else "SQLite"
    kept = _FOLDER / "sizes.jsonl"
    known = size_report.read(kept)
    for part in [] if given.report else given.parts:
        with _places(given.postgresql, part) as addresses:
            for figure in measure(part, addresses):
                known[catalog, part, figure.size, figure.verb] = figure
        size_report.write(kept, known)
        print(size_report.table(known, catalog, part), flush=True)
    if given.report:
        print(size_report.tables(known))
    if given.publish:
        size_report.publish(known, _DOCS)


if __name__ == "__main__":
    main()
