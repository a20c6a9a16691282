"""Measure what a log costs: loads into a queue with a log beside those into one without, in turn.

    python -m benchmarks.readers [--rounds 300] [--postgresql]

Times are medians of paired rounds; statements and CPU are of a whole series, with the server's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, delete, insert, select, update

from benchmarks.arguments import add_catalog, store_of
from benchmarks.costs import Meter
from queue_core import Firing, Queue, Store
from queue_core.catalog import dialect, seals
from queue_core.catalog.tables import log_slices, segments, shards
from queue_core.values.model import Magazine
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
            before, begin = meter.now(), time.perf_counter()
            works[at]()
            taken[at].append(time.perf_counter() - begin)
            spent = meter.since(before)
            cpu[at] += spent.cpu
            statements[at] += spent.statements
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


def with_log(store: Store, name: str, rows: int) -> Queue:
    """Return a queue whose log has so many rows of a week, of 100 messages, in empty segments."""
    topic = store.create_queue(name, SCHEMA, shards=8, log="6 days")
    # The queue's first segment, whose columns the others take.
    topic.load(rows_of(100))

    def fill(connection: Connection) -> None:
        of_topic = log_slices.c.queue_id == topic.info.id
        model = dict(connection.execute(select(log_slices).where(of_topic)).mappings().one())
        first = select(segments).where(segments.c.id == model["segment_id"])
        segment = dict(connection.execute(first).mappings().one())
        # No small ones, which would be merged.
        segment |= {"data": b"", "chunks": b"", "log_rows": 1, "bytes": 1 << 20, "seal": None}
        connection.execute(delete(log_slices).where(of_topic))
        week, now = 7 * 86_400_000_000, model["logged_at"]
        for begin in range(0, rows, 10_000):
            numbers = range(begin, min(begin + 10_000, rows))
            ids = [segment["id"] + 1 + number for number in numbers]
            connection.execute(insert(segments), [segment | {"id": at} for at in ids])
            each = [
                model
                | {"shard": number % 8, "first_offset": number // 8 * 100, "segment_id": at}
                | {"bytes_before": number // 8 * model["bytes"], "seal": None}
                | {"logged_at": now - week + week * number // rows}
                for number, at in zip(numbers, ids, strict=True)
            ]
            connection.execute(insert(log_slices), each)
        dialect.of(connection).raise_ids(connection, segments, segment["id"] + rows)
        main = (shards.c.queue_id == topic.info.id, shards.c.magazine == int(Magazine.MAIN))
        logged = {"logged": rows // 8 * 100, "logged_bytes": rows // 8 * model["bytes"]}
        connection.execute(update(shards).where(*main).values(seals.changing(shards, **logged)))

    store.catalog.write(fill)
    return topic


def large(store: Store, rounds: int, rows: int) -> dict[str, list[dict[str, float]]]:
    """Measure a log of many rows beside one of few."""
    topics = [with_log(store, "few", 8), with_log(store, "many", rows)]
    readers = [store.subscribe(f"reader-{each.name}", to=each.name) for each in topics]
    meter = Meter(store)
    loaded = rows_of(100)
    chosen = {"selector": "number >= 0"}
    with store.catalog.read() as connection:
        now = dialect.read_clock(connection)
    day = datetime.fromtimestamp(now / 1e6, UTC) - timedelta(days=3)
    subscriptions = iter(range(10**6))

    def begin(topic: Queue) -> None:
        store.subscribe(f"late-{next(subscriptions)}", to=topic.name, start=day).admin.deactivate()

    found = {}
    for label, of, work in (
        ("load 100", topics, lambda queue: queue.load(loaded)),
        ("fire 100", readers, lambda queue: queue.delete(queue.fire(100))),
        ("take in and fire 50", readers, lambda queue: queue.fire(50, **chosen)),
        ("look for rows to merge", topics, lambda queue: queue.admin.compact()),
        ("begin at a time", topics, begin),
    ):
        if label.startswith("take"):
            for _ in range(rounds):
                for topic in topics:
                    topic.load(loaded)
        count = rounds if label.startswith(("load", "fire", "take")) else 5
        found[label] = paired(meter, count, *(partial(work, queue) for queue in of))
    for name in store.queues():
        if name.startswith("late-"):
            store.queue(name).admin.drop()
    found["trim a day"] = []
    for topic in topics:
        before, started = meter.now(), time.perf_counter()
        print(f"trimmed {topic.admin.trim():,} messages of {topic.name}")
        taken, spent = time.perf_counter() - started, meter.since(before)
        figures = {
            "median ms": taken * 1e3,
            "CPU ms": spent.cpu,
            "statements": spent.statements,
        }
        found["trim a day"].append(figures)
    return found


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "what", choices=("loads", "firings", "large", "all"), nargs="?", default="all"
    )
    arguments.add_argument("--loaded", type=int, default=100, help="messages of each load")
    arguments.add_argument("--rounds", type=int, default=300)
    arguments.add_argument("--rows", type=int, default=1_000_000, help="rows of the large log")
    add_catalog(arguments)
    given = arguments.parse_args()
    with store_of(given, under=".") as store:
        found = {}
        if given.what == "large":
            found |= large(store, given.rounds, given.rows)
        if given.what in ("loads", "all"):
            found |= loads(store, given.rounds)
        if given.what in ("firings", "all"):
            for merged in (False, True):
                found |= firings(store, given.rounds, given.loaded, merged=merged)
    table = Table(title="PostgreSQL" if given.postgresql or given.catalog else "SQLite")
    names = ("few rows", "many rows")
    if given.what != "large":
        names = ("plain", "with a log, or subscribed")
    for column in ("", *names, "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for label, (one, other) in found.items():
        for name, value in one.items():
            ratio = f"{other[name] / value:.2f}"
            table.add_row(f"{label}, {name}", f"{value:.2f}", f"{other[name]:.2f}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
