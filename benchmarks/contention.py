"""Measure what consumers and producers cost each other: ``python -m benchmarks.contention ROW``.

    python -m benchmarks.contention slices|shards|consumers|loads|idle [--postgresql]

*slices*: CPU and statements to fire 100,000 messages, by the size of their slices. *shards*: the
statements of each verb for 1,000 messages, by the number of shards. *consumers*: processes that
fire, read and delete 100 messages at a time. *loads*: processes that load single messages. *idle*:
transactions of consumers that wait for messages, beside another queue that is loaded.
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_catalog, store_of
from benchmarks.costs import Meter
from queue_core import Store
from queue_core.selection.request import FireRequest
from queue_core.values.address import Address
from queue_core.verbs.fire import fire

PROCESSES = (1, 4, 16)
WAITERS = 10
_spawn = multiprocessing.get_context("spawn")


def rows(count: int) -> pa.Table:
    """Return messages of 100 bytes."""
    return pa.table({"number": range(count), "payload": [b"x" * 100] * count})


class Measured(NamedTuple):
    """What processes do in a second, and the CPU milliseconds and statements of one unit."""

    rate: float
    client: float
    server: float
    statements: float
    cores: float


def slices(store: Store, _: float) -> Table:
    """Fire 100,000 messages of 32 shards, from small and from large slices."""
    table = Table("messages in a slice", "CPU ms", "statements", title="fire 100,000")
    meter = Meter(store)
    for size in (100, 1_000, 10_000):
        queue = store.create_queue(f"of{size}", rows(1).schema, shards=32, key="number")
        for _ in range(2_000_000 // size // 32 + 1):
            queue.load(rows(32 * size))
        who = store.consumer("benchmark")
        wanted = FireRequest(queue_ids=(queue.info.id,), max_messages=100_000)
        fire(store.catalog, who, wanted)  # The first one compiles the statements.
        before = meter.now()
        assert fire(store.catalog, who, wanted).ticket
        spent = meter.since(before)
        table.add_row(f"{size:,}", f"{spent.client:.0f}", f"{spent.statements}")
    return table


def shards(store: Store, _: float) -> Table:
    """Load, fire and settle 1,000 messages of queues with few and with many shards."""
    verbs: dict[str, list[str]] = {}
    counts = (1, 32, 512)
    meter = Meter(store)
    for count in counts:
        queue = store.create_queue(f"of{count}", rows(1).schema, shards=count, key="number")
        for _ in range(2):  # The first round compiles the statements.
            for verb, work in _life(queue):
                before = meter.now()
                work()
                spent = meter.since(before)
                verbs.setdefault(verb, []).append(f"{spent.statements} / {spent.client:.0f}")
    table = Table("1,000 messages", *map(str, counts), title="statements / CPU ms, by shards")
    for verb, cells in verbs.items():
        table.add_row(verb, *cells[1::2])
    return table


def _life(queue: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    firings: list[Any] = []
    yield "load", lambda: queue.load(rows(1_000))
    yield "fire", lambda: firings.append(queue.fire(1_000))
    yield "reload", lambda: queue.reload(firings.pop())
    yield "fire again", lambda: firings.append(queue.fire(1_000))
    yield "sideline", lambda: queue.sideline(firings.pop())
    yield "shovel", queue.shovel
    yield "fire the shovelled", lambda: firings.append(queue.fire(1_000))
    yield "delete", lambda: queue.delete(firings.pop())


def consumers(store: Store, seconds: float) -> Table:
    """Fire, read and delete 100 messages at a time, in some processes."""
    table = _side_by_side("messages a second", "consumers of 100, CPU ms of 100 messages")
    for count in PROCESSES:
        queue = store.create_queue(f"for{count}", rows(1).schema, shards=32, key="number")
        for _ in range(20):
            queue.load(rows(50_000))
        _add(table, count, _rate(consume, store, queue.name, count, seconds), 100)
    return table


def _side_by_side(rate: str, title: str) -> Table:
    # No busy machine can give more cores than it has: those that are used say what is left.
    return Table("processes", rate, "client", "server", "statements", "cores used", title=title)


def _add(table: Table, count: int, measured: Measured, unit: int) -> None:
    table.add_row(
        f"{count}",
        f"{measured.rate:,.0f}",
        f"{measured.client * unit:.1f}",
        f"{measured.server * unit:.1f}",
        f"{measured.statements * unit:.1f}",
        f"{measured.cores:.2f}",
    )


def consume(store: Store, name: str, number: int) -> Callable[[], int]:
    """Return the work of a consumer, which returns the number of its messages."""
    queue, who = store.queue(name), store.consumer(f"{name}-{number}")

    def work() -> int:
        firing = queue.fire(100, consumer=who)
        handled = firing.messages.num_rows
        queue.delete(firing)
        return handled

    return work


def loads(store: Store, seconds: float) -> Table:
    """Load single messages in some processes, while nobody and while somebody waits."""
    table = _side_by_side("loads a second", "loads of 1, CPU ms of one")
    for count in PROCESSES:
        queue = store.create_queue(f"by{count}", rows(1).schema, shards=32, key="number")
        _add(table, count, _rate(load, store, queue.name, count, seconds), 1)
    return table


def load(store: Store, name: str, _: int) -> Callable[[], int]:
    """Return the work of a producer."""
    queue, row = store.queue(name), rows(1)
    return lambda: len(queue.load(row))


def idle(store: Store, seconds: float) -> Table:
    """Wait for messages of some queues while another one is loaded ten times a second."""
    table = Table("beside", "per waiting consumer", title="transactions a second")
    stop = threading.Event()
    queues = [store.create_queue(f"idle{n}", rows(1).schema) for n in range(WAITERS)]

    def wait(queue: Any) -> None:
        while not stop.is_set():
            queue.fire(selector="number > 0", timeout=1)

    waiting = [threading.Thread(target=wait, args=(queue,)) for queue in queues]
    for thread in waiting:
        thread.start()
    time.sleep(2)
    busy = store.create_queue("busy", rows(1).schema)
    meter = Meter(store)
    with Store(store.address) as other:
        for beside, pause in (("nothing", seconds), ("another queue", 0.1)):
            before, end = meter.now(), time.monotonic() + seconds
            while time.monotonic() < end:
                if pause < seconds:
                    other.queue(busy.name).load(rows(1))
                time.sleep(pause)
            begun = meter.since(before).transactions
            table.add_row(beside, f"{begun / WAITERS / seconds:.1f}")
    stop.set()
    for thread in waiting:
        thread.join()
    return table


def _rate(
    work: Callable[[Store, str, int], Callable[[], int]],
    store: Store,
    name: str,
    count: int,
    seconds: float,
) -> Measured:
    """Return what some processes do in a second, and what each unit costs."""
    ready, begin, end = (_spawn.Semaphore(0), _spawn.Event(), _spawn.Event())
    done = _spawn.Queue()
    processes = [
        _spawn.Process(target=_repeat, args=(work, store.address, name, n, ready, begin, end, done))
        for n in range(count)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    begin.set()
    time.sleep(seconds)
    end.set()
    found = [done.get() for _ in processes]
    for process in processes:
        process.join()
    count, client, server, statements = (sum(each) for each in zip(*found, strict=True))
    return Measured(
        rate=count / seconds,
        client=client / count,
        server=server / count,
        statements=statements / count,
        cores=(client + server) / 1e3 / seconds,
    )


def _repeat(
    work: Callable[[Store, str, int], Callable[[], int]],
    address: Address,
    name: str,
    number: int,
    ready: Any,
    begin: Event,
    end: Event,
    done: Any,
) -> None:
    with Store(address) as store:
        meter = Meter(store)
        once = work(store, name, number)
        once()
        ready.release()
        begin.wait()
        count, before = 0, meter.now()
        while not end.is_set():
            count += once()
        spent = meter.since(before)
        done.put((count, spent.client, spent.server, spent.statements))


ROWS = {row.__name__: row for row in (slices, shards, consumers, loads, idle)}


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("row", choices=ROWS)
    add_catalog(arguments)
    arguments.add_argument("--seconds", type=float, default=5.0)
    given = arguments.parse_args()
    with store_of(given) as store:
        Console().print(ROWS[given.row](store, given.seconds))


if __name__ == "__main__":
    main()
