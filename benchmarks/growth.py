"""How costs grow with the size of a store: ``python -m benchmarks.growth [ROW ...]``.

Each row measures one cost at several sizes. It prints CPU seconds of this process, which on SQLite
include the database, beside the number of statements; so the figures hardly depend on other work of
the machine. ``--postgresql`` measures on PostgreSQL, where the time on the wall is printed.

Large stores are made by copying rows of the catalog, so that a million slices take seconds.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.arguments import add_catalog, add_names, catalog_of
from benchmarks.costs import Meter
from benchmarks.fabricated import make, run
from queue_core import Queue, Store
from queue_core.catalog.tables import metadata
from queue_core.segments.reader import read as read_plan
from queue_core.selection.request import FireRequest
from queue_core.upkeep.tasks import compaction
from queue_core.upkeep.tasks import expire as expire_task
from queue_core.upkeep.tasks.purge import purge
from queue_core.upkeep.tasks.task import TaskContext
from queue_core.values.model import ReadPlan, TicketRange
from queue_core.verbs.fire import fire as fire_verb
from queue_core.verbs.read_tickets import read_tickets

ROUNDS = 3
DAY = 24 * 3600 * 10**6


class Growth:
    """A store that grows, and the costs in it."""

    def __init__(self, catalog: str | None) -> None:
        self.catalog = catalog
        self._clock = time.perf_counter if catalog else time.process_time

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open a new store."""
        with tempfile.TemporaryDirectory(prefix="ignis-growth-", dir=".") as folder:
            if self.catalog is None:
                with Store.open(folder) as store:
                    yield store
                return
            with Store.open(catalog=self.catalog, storage=str(Path(folder) / "data")) as store:
                yield store
                for table in metadata.tables:
                    run(store, f"DROP TABLE {table} CASCADE")

    def measure(
        self,
        label: str,
        size: int,
        store: Store,
        work: Callable[[], object],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """Run *work* some times, each time after *before*, and print the median time."""
        times = []
        meter = Meter(store)
        for _ in range(ROUNDS):
            before()
            gc.collect()
            at_first, begun = meter.now(), self._clock()
            work()
            times.append(self._clock() - begun)
            if times[-1] > 5:
                break
        median, sent = statistics.median(times) * 1e3, meter.since(at_first).statements
        print(f"{label:36} {size:>9,} {median:>10.1f} ms {sent:>5}", flush=True)


def age_failures(store: Store, days: int) -> None:
    """Let all failures be older."""
    run(store, f"UPDATE failures SET failed_at = failed_at - {days * DAY}")  # noqa: S608 - a number


def kept(growth: Growth) -> None:
    """Purge where an old failure is beside older messages, and so stays."""
    for size in (100, 10_000, 100_000, 1_000_000):
        with growth.store() as store:
            queue = make(store, "many", size)
            queue.sideline(queue.fire(1), reason="benchmark")
            age_failures(store, 8)
            run(store, f"UPDATE slices SET loaded_at = loaded_at - {9 * DAY}")  # noqa: S608
            work = partial(purge, store.catalog)
            growth.measure("forget: nothing to do, slices", size, store, work)


def forget(growth: Growth) -> None:
    """Purge 20 old failures of a queue, beside many slices that were loaded later."""
    for size in (100, 10_000, 100_000):
        with growth.store() as store:
            queue = make(store, "many", size)

            def fail(store: Store = store, queue: Queue = queue) -> None:
                for _ in range(20):
                    queue.sideline(queue.fire(1), reason="benchmark")
                age_failures(store, 8)

            label = "forget: 20 failures, slices"
            growth.measure(label, size, store, partial(purge, store.catalog), before=fail)


def compact(growth: Growth) -> None:
    """Look for slices that are worth compacting, where none is: when it is due, and by hand."""
    for size in (100, 10_000, 100_000, 1_000_000):
        with growth.store() as store:
            queue = make(store, "many", size)
            run(store, "UPDATE segments SET bytes = 100000")
            run(store, "UPDATE slices SET bytes = 100000")
            due = partial(run_due, store, compaction, queue)
            growth.measure("compact: nothing to do, slices", size, store, due)
            growth.measure("compact by hand: nothing to do", size, store, queue.admin.compact)


def candidates(growth: Growth) -> None:
    """Choose what one round of compaction rewrites, where all slices are small."""
    for size in (100, 10_000, 100_000, 1_000_000):
        with growth.store() as store, mock.patch.object(compaction, "_rewrite", return_value=0):
            queue = make(store, "many", size)
            before = _peak()
            work = partial(compaction.run, context_of(store), queue.info)
            growth.measure("compact: candidates, slices", size, store, work)
            print(f"{'':36} peak memory before {before:.0f} MB, after {_peak():.0f} MB")


def _peak() -> float:
    """Return the peak memory of this process in MB; unlike ru_maxrss, without its parent's."""
    (line,) = (n for n in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in n)
    return int(line.split()[1]) / 1024


def context_of(store: Store) -> TaskContext:
    """Return the context of a task that a person asks for."""
    return TaskContext(
        catalog=store.catalog, storage=store.storage, leader=None, shovelful=lambda _: None
    )


def run_due(store: Store, task: ModuleType, queue: Queue) -> int:
    """Run a task of a queue as a process does when it is due, once."""
    context = context_of(store)._replace(asked_for=False)
    chosen = task.with_work(store.catalog, [queue.info])
    return sum(task.run(context, one) for one in chosen)


def views(growth: Growth) -> None:
    """Views of one queue, beside other queues and beside other slices."""
    for size in (1, 100, 1_000):
        with growth.store() as store:
            queues = [make(store, f"queue-{number}", 1) for number in range(size)]
            _views(growth, store, queues[0], size, "queues")
    for size in (100, 100_000, 1_000_000):
        with growth.store() as store:
            _views(growth, store, make(store, "many", size), size, "slices")


def _views(growth: Growth, store: Store, queue: Queue, size: int, of: str) -> None:
    def view(name: str, one: str | None = queue.name) -> Callable[[], object]:
        return lambda: store.view(name, one)

    growth.measure(f"metadata(), {of}", size, store, queue.metadata)
    growth.measure(f"view queues of one, {of}", size, store, view("queues"))
    if of == "queues":
        growth.measure("view slices of one, queues", size, store, view("slices"))
        growth.measure("view failures of one, queues", size, store, view("failures"))
        growth.measure("view failures of all, queues", size, store, view("failures", None))
        growth.measure("store.queues(), queues", size, store, store.queues)


def expire(growth: Growth) -> None:
    """Expire where no message has expired: when it is due, and by hand."""
    for size in (100, 10_000, 100_000, 1_000_000):
        with growth.store() as store:
            queue = make(store, "many", size, message_expiry=86_400.0)
            due = partial(run_due, store, expire_task, queue)
            growth.measure("expire: nothing expired, slices", size, store, due)
            growth.measure("expire by hand: nothing expired", size, store, queue.admin.expire)


def vacuum(growth: Growth) -> None:
    """Vacuum where nothing is left over."""
    for size in (100, 10_000, 100_000, 1_000_000):
        with growth.store() as store:
            make(store, "many", size)
            growth.measure("vacuum: nothing to do, slices", size, store, store.admin.vacuum)


def read(growth: Growth) -> None:
    """Read 500 MB of large messages, beside bare Arrow, which reads the same files."""
    for size in (1_000, 100_000, 1_000_000, 10_000_000):
        with tempfile.TemporaryDirectory(prefix="ignis-growth-", dir=".") as folder:
            _fill(folder, size)
            (ours, bare, ratio), (high,), (low,) = (
                _read_in_process(which, folder) for which in ("both", "ignis", "bare")
            )
            print(
                f"{'read 500 MB, bytes of a message':36} {size:>9,} {ours:.3f} s, bare {bare:.3f} s"
                f" ({ratio:.2f}), peak {high:.0f} MB, bare {low:.0f} MB",
                flush=True,
            )


def _read_in_process(which: str, folder: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.growth", "--reader", which, folder]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(figure) for figure in printed.split()]


_WHOLE = 500_000_000


def _fill(folder: str, size: int) -> None:
    schema = pa.schema([("payload", pa.binary())])
    some = np.random.default_rng(1).bytes(size)
    at_once = max(20_000_000 // size, 1)
    with Store.open(folder) as store:
        queue = store.create_queue("large", schema, shards=1, message_expiry=None)
        for _ in range(_WHOLE // (at_once * size)):
            rows = pa.table([pa.array([some] * at_once, pa.binary())], schema=schema)
            queue.load(rows)
        wanted = FireRequest(queue_ids=(queue.info.id,))
        fire_verb(store.catalog, store.consumer("reader"), wanted)


def _reader(which: str, folder: str) -> None:
    """Print the peak memory of reading in MB; of both in turns, the CPU seconds and their ratio."""
    reading = {"bare": _bare, "ignis": _ignis}

    def timed(name: str) -> float:
        begun = time.process_time()
        total = sum(batch.nbytes for batch in reading[name](folder))
        assert total >= _WHOLE * 0.98, total
        return time.process_time() - begun

    if which in reading:
        timed(which)
        print(_peak())
        return
    # The first readings also import and warm up.
    times = [(timed("ignis"), timed("bare")) for _ in range(1 + 4 * ROUNDS)][1:]
    ours, bare = zip(*times, strict=True)
    ratio = statistics.median(ours[at] / bare[at] for at in range(len(times)))
    print(statistics.median(ours), statistics.median(bare), ratio)


def _bare(folder: str) -> Iterator[pa.RecordBatch]:
    # The segments themselves are Arrow files. A copy of them elsewhere in the page cache can take
    # twice as long to read, or half as long.
    for path in sorted(Path(folder).rglob("*.arrow")):
        with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def _ignis(folder: str) -> Iterator[pa.RecordBatch]:
    return read_plan(_plan(folder), ["payload"])


@cache
def _plan(folder: str) -> ReadPlan:
    with Store.open(folder) as store:
        queue, consumer = store.queue("large"), store.consumer("reader")
        tickets = TicketRange(consumer, 0, 1)
        return read_tickets(store.catalog, store.storage.uri, [queue.info], tickets)


ROWS = {
    row.__name__: row for row in (read, forget, kept, compact, candidates, views, expire, vacuum)
}


def main() -> None:
    """Measure the rows that were asked for."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_names(arguments, "rows", ROWS)
    add_catalog(arguments)
    arguments.add_argument("--reader", nargs=2, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.reader:
        _reader(*given.reader)
        return
    with catalog_of(given) as catalog:
        growth = Growth(catalog)
        for name in given.rows:
            ROWS[name](growth)


if __name__ == "__main__":
    main()
