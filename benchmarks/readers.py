"""Measure what a log costs: loads into a queue with a log beside those into one without, in turn.

    python -m benchmarks.readers [--rounds 300] [--postgresql]

Times are medians of paired rounds; statements and CPU are of a whole series, with the server's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.costs import Meter
from benchmarks.peers.servers import Servers
from queue_core import Firing, Queue, Store
from tests.dump import log_in_a_minute

SCHEMA = pa.schema([("number", pa.int64()), ("payload", pa.binary())])


def rows_of(count: int) -> pa.Table:
    """Return messages of 100 bytes."""
    return pa.table([range(count), [b"x" * 100] * count], schema=SCHEMA)


def paired(meter: Meter, rounds: int, *works: Callable[[], object]) -> list[dict[str, float]]:
    """Return the median milliseconds, the CPU and the statements of each of some works, in turn."""
    for work in works:
        for _ in range(max(rounds // 10, 1)):
            work()
    taken: list[list[float]] = [[] for _ in works]
    cpu = [0.0 for _ in works]
    statements = [0 for _ in works]
    for number in range(rounds):
        # Neither is always the first.
        order = range(len(works)) if number % 2 else reversed(range(len(works)))
        for at in order:
            before, used, begin = meter.statements, meter.both(), time.perf_counter()
            works[at]()
            taken[at].append(time.perf_counter() - begin)
            cpu[at] += meter.both() - used
            statements[at] += meter.statements - before
    return [
        {
            "median ms": statistics.median(taken[at]) * 1e3,
            "CPU ms": cpu[at] / rounds,
            "statements": statements[at] / rounds,
        }
        for at in range(len(works))
    ]


def loads(store: Store, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Measure loads of some sizes into a plain queue, and into one with a log."""
    plain = store.create_queue("plain", SCHEMA, shards=8)
    logged = store.create_queue("logged", SCHEMA, shards=8, log="7 days")
    meter = Meter(store)
    found = {}
    for count in (1, 100, 1000):
        rows = rows_of(count)
        found[f"load of {count}"] = paired(
            meter, rounds, lambda r=rows: plain.load(r), lambda r=rows: logged.load(r)
        )
    return found


def firings(
    store: Store, rounds: int, loaded: int, *, merged: bool = False
) -> dict[str, list[dict[str, float]]]:
    """
    Measure firings and deletions from a plain queue, and from a subscription, of one backlog.

    *merged*: of a log that compaction has merged.
    """
    name = f"{loaded}{'-merged' if merged else ''}"
    plain = store.create_queue(f"plain-{name}", SCHEMA, shards=8)
    topic = store.create_queue(f"topic-{name}", SCHEMA, shards=8, log="7 days")
    reader = store.subscribe(f"reader-{name}", to=topic.name)
    rows = rows_of(loaded)
    meter = Meter(store)
    found = {}
    for count in (1, 100, 1000):
        needed = (rounds + rounds // 10 + 2) * count
        for _ in range(-(-needed // loaded)):
            plain.load(rows)
            topic.load(rows)
        if merged:
            log_in_a_minute(store)
            print(f"merged {topic.admin.compact()} messages")
        held: dict[str, list[Firing]] = {plain.name: [], reader.name: []}

        def fire(queue: Queue, count: int = count, held: dict[str, list[Firing]] = held) -> None:
            fired = queue.fire(count)
            assert fired.messages.num_rows == count
            held[queue.name].append(fired)

        label = ", merged" if merged else ""
        found[f"fire {count}{label}"] = paired(
            meter, rounds, lambda: fire(plain), lambda: fire(reader)
        )
        found[f"delete {count}{label}"] = paired(
            meter,
            rounds * 9 // 10,
            lambda held=held: plain.delete(held[plain.name].pop()),
            lambda held=held: reader.delete(held[reader.name].pop()),
        )
        for queue in (plain, reader):
            for fired in held[queue.name]:
                queue.delete(fired)
    return found


def main() -> int:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("what", choices=("loads", "firings", "all"), nargs="?", default="all")
    arguments.add_argument("--loaded", type=int, default=100, help="messages of each load")
    arguments.add_argument("--rounds", type=int, default=300)
    arguments.add_argument("--postgresql", action="store_true", help="on a server of its own")
    given = arguments.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ignis-readers-", dir="."))
        servers = stack.enter_context(Servers(Path(folder)))
        if given.postgresql:
            url = servers.database("readers").replace("postgresql:", "postgresql+psycopg:", 1)
            opened = Store.open(catalog=url, storage=f"{folder}/data")
        else:
            opened = Store.open(f"{folder}/store")
        store = stack.enter_context(opened)
        found = {}
        if given.what != "firings":
            found |= loads(store, given.rounds)
        if given.what != "loads":
            for merged in (False, True):
                found |= firings(store, given.rounds, given.loaded, merged=merged)
    table = Table(title="PostgreSQL" if given.postgresql else "SQLite")
    for column in ("", "plain", "with a log, or subscribed", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for label, (one, other) in found.items():
        for name, value in one.items():
            ratio = f"{other[name] / value:.2f}"
            table.add_row(f"{label}, {name}", f"{value:.2f}", f"{other[name]:.2f}", ratio)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
