"""Verbs that move or remove many small slices: ``python -m benchmarks.moves [ROW ...]``.

A sweep, a shovel and an expiry of 1,000, 10,000 and 100,000 slices of one message each, and the
settlement of one message beside as many that its consumer holds. `beside`: 10,000 slices of one
message each are swept and shovelled, and shovelled by a selector and in halves by a limit, in brief
rounds and in others, alone and beside a process that fires single messages of another queue; and
how long its firings wait for the store. Each line prints the CPU time of this process, which on
SQLite includes the database; the number of transactions that write; and the longest of them, for
which others wait. ``--postgresql`` measures on PostgreSQL, where the time on the wall is printed
instead of the CPU time.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial

import numpy as np

from benchmarks.arguments import add_catalog, add_names, catalog_of
from benchmarks.console import firings
from benchmarks.costs import Meter, writes
from benchmarks.fabricated import make, run
from benchmarks.growth import Growth
from queue_core import Queue, Store
from queue_core.selection import rounds

SIZES = (1_000, 10_000, 100_000)
#: The slices that are moved beside a process that fires.
BESIDE = 10_000


def measure(growth: Growth, label: str, size: int, store: Store, work: Callable[[], int]) -> int:
    """Run *work* once; print what it costs, and return its result."""
    clock = time.perf_counter if growth.catalog else time.process_time
    gc.collect()
    meter = Meter(store)
    with writes(store) as lasted:
        before, begun = meter.now(), clock()
        result = work()
        took = clock() - begun
        sent = meter.since(before).statements
    print(
        f"{label:20} {size:>8,} slices {took * 1e3:>9.1f} ms  {len(lasted):>4} transactions, the "
        f"longest {max(lasted, default=0) * 1e3:>7.1f} ms  {sent:>6} statements",
        flush=True,
    )
    return result


def _held(growth: Growth, store: Store, size: int) -> Queue:
    """Return a queue all of whose messages one dead consumer holds."""
    queue = make(store, "many", size, message_expiry=None, retry=None)
    consumer = store.consumer("holder")
    fired = 0
    while fired < size:
        fired += len(queue.fire(50_000, consumer=consumer).ids)
    return queue


def sweep(growth: Growth) -> None:
    """Sweep all slices, and shovel them back."""
    for size in SIZES:
        with growth.store() as store:
            queue = _held(growth, store, size)
            run(store, "UPDATE slices SET fired_at = fired_at - 1000000000000")
            work = lambda queue=queue: queue.sweep(older_than=1)  # noqa: E731
            assert measure(growth, "sweep", size, store, work) == size
            assert measure(growth, "shovel", size, store, queue.shovel) == size


def expire(growth: Growth) -> None:
    """Expire all slices."""
    for size in SIZES:
        with growth.store() as store:
            queue = make(store, "many", size, message_expiry=86_400.0)
            run(store, "UPDATE slices SET loaded_at = loaded_at - 1000000000000")
            assert measure(growth, "expire", size, store, queue.admin.expire) == size


def settle(growth: Growth) -> None:
    """Delete one message of many that its consumer holds; all but one are told apart by id."""
    for size in SIZES:
        with growth.store() as store:
            queue = _held(growth, store, size)
            id = store.view("slices", "many")["segment_id"][0].as_py() << 20
            for number in range(3):
                work = partial(queue.delete, [id + (number << 20)], consumer="holder")
                measure(growth, "settle one", size, store, work)


def beside(growth: Growth) -> None:
    """Sweep and shovel slices in brief rounds and in others, alone and while others fire."""
    for others in (False, True):
        for brief in (False, True):
            with growth.store() as store, ExitStack() as stack:
                queue = _held(growth, store, BESIDE)
                make(store, "others", 100, message_expiry=None)
                waits = stack.enter_context(firings(store, "others")) if others else None
                label = f"{'brief' if brief else 'others'} {'beside' if others else 'alone'}"
                for name, act in _acts(queue):
                    run(store, "UPDATE slices SET fired_at = fired_at - 1000000000000")
                    began = time.monotonic()
                    with rounds.brief() if brief else nullcontext():
                        assert measure(growth, f"{name} {label}", BESIDE, store, act) == BESIDE
                    ended = time.monotonic()
                    shown = f"    {ended - began:.2f} s on the wall"
                    if waits is not None:
                        found = waits(began, ended)
                        median, high = np.percentile(found, (50, 99)) if len(found) else (0, 0)
                        shown += f", {len(found)} firings wait: median {median:.1f} ms, "
                        shown += f"p99 {high:.1f}, longest {max(found, default=0):.1f}"
                    print(shown, flush=True)
                    if not name.startswith("sweep"):
                        # To the sideline again, as a sweep does.
                        holder = store.consumer("holder")
                        while len(queue.fire(50_000, consumer=holder)):
                            pass
                        run(store, "UPDATE slices SET fired_at = fired_at - 1000000000000")
                        queue.sweep(older_than=1)


def _acts(queue: Queue) -> tuple[tuple[str, Callable[[], int]], ...]:
    half = BESIDE // 2
    return (
        ("sweep", lambda: queue.sweep(older_than=1, dead_after=0)),
        ("shovel", queue.shovel),
        ("by selector", lambda: queue.shovel(selector="number >= 0")),
        ("by limit", lambda: queue.shovel(half) + queue.shovel(half)),
    )


ROWS = {row.__name__: row for row in (sweep, expire, settle, beside)}


def main() -> None:
    """Measure the rows that were asked for."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_names(arguments, "rows", ROWS)
    add_catalog(arguments)
    given = arguments.parse_args()
    with catalog_of(given) as catalog:
        growth = Growth(catalog)
        for name in given.rows:
            ROWS[name](growth)


if __name__ == "__main__":
    main()
