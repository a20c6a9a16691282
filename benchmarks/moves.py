"""Verbs that move or remove many small slices: ``python -m benchmarks.moves [ROW ...]``.

A sweep, a shovel and an expiry of 1,000, 10,000 and 100,000 slices of one message each, and the
settlement of one message beside as many that its consumer holds. Each line prints the CPU time of
this process, which on SQLite includes the database; the number of transactions that write; and the
longest of them, for which others wait. ``--catalog URL`` measures on PostgreSQL, where the time on
the wall is printed instead of the CPU time.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from functools import partial
from unittest import mock

from benchmarks.fabricated import make, run
from benchmarks.growth import Growth, Statements
from queue_core import Queue, Store

SIZES = (1_000, 10_000, 100_000)


def measure(growth: Growth, label: str, size: int, store: Store, work: Callable[[], int]) -> int:
    """Run *work* once; print what it costs, and return its result."""
    clock = time.perf_counter if growth.catalog else time.process_time
    lasted: list[float] = []
    write = store.catalog.write

    def timed(*arguments: object, **options: object) -> object:
        begun = time.perf_counter()
        try:
            return write(*arguments, **options)
        finally:
            lasted.append(time.perf_counter() - begun)

    gc.collect()
    statements = Statements(store)
    with mock.patch.object(store.catalog, "write", timed):
        begun = clock()
        result = work()
        took = clock() - begun
    print(
        f"{label:20} {size:>8,} slices {took * 1e3:>9.1f} ms  {len(lasted):>4} transactions, the "
        f"longest {max(lasted, default=0) * 1e3:>7.1f} ms  {statements.number:>6} statements",
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
            assert measure(growth, "expire", size, store, queue.expire) == size


def settle(growth: Growth) -> None:
    """Delete one message of many that its consumer holds; all but one are told apart by id."""
    for size in SIZES:
        with growth.store() as store:
            queue = _held(growth, store, size)
            id = store.view("slices", "many")["segment_id"][0].as_py() << 20
            for number in range(3):
                work = partial(queue.delete, [id + (number << 20)], consumer="holder")
                measure(growth, "settle one", size, store, work)


ROWS = {row.__name__: row for row in (sweep, expire, settle)}


def main() -> None:
    """Measure the rows that were asked for."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("rows", nargs="*", choices=[[], *ROWS])
    arguments.add_argument("--catalog", help="URL of an empty database on PostgreSQL")
    given = arguments.parse_args()
    growth = Growth(given.catalog)
    for name in given.rows or ROWS:
        ROWS[name](growth)


if __name__ == "__main__":
    main()
