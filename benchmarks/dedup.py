"""De-duplication: the CPU of a load by the number of known keys, beside a plain unique index.

    python -m benchmarks.dedup                        # keys of 8 bytes, on SQLite
    python -m benchmarks.dedup --keys uuid 100 10000  # UUIDs as text, with 100 and 10,000 known
    python -m benchmarks.dedup --postgresql

For each number of known keys: loads of 1, of 1,000, and of a million messages into a queue with
`dedup` and into one without. Then the bytes that the catalog grew by for each key of the million,
and what it costs to forget them. *plain*: the same million keys go into a table of one column, in
one INSERT with ON CONFLICT DO NOTHING. A server must run on this machine.
"""

from __future__ import annotations

import argparse
import statistics
import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, text

from benchmarks.arguments import add_catalog, store_of
from benchmarks.costs import Meter
from queue_core import Queue, Store
from queue_core.upkeep.tasks.purge import purge

MANY = 1_000_000
#: How many loads of each size are measured; the median counts.
SIZES = {1: 50, 1_000: 9, MANY: 1}


class Keys:
    """New keys, whose order in the index is that of loading (numbers) or none (UUIDs)."""

    def __init__(self, kind: str) -> None:
        self.type = pa.int64() if kind == "number" else pa.string()
        self._used = 0
        self._random = np.random.default_rng(1)

    def table(self, count: int) -> pa.Table:
        """Return messages with as many new keys."""
        self._used += count
        if pa.types.is_integer(self.type):
            return pa.table({"key": np.arange(self._used - count, self._used)})
        numbers = (uuid.UUID(bytes=self._random.bytes(16)) for _ in range(count))
        return pa.table({"key": [str(number) for number in numbers]})


def figures(store: Store, keys: Keys, known: int) -> Iterator[str]:
    """Yield the costs with a number of known keys."""
    schema = pa.schema([("key", keys.type)])
    names = f"with-{known}", f"without-{known}"
    queue = store.create_queue(names[0], schema, dedup=["key"], dedup_window="30d")
    without = store.create_queue(names[1], schema)
    meter = Meter(store)
    for first in range(0, known, 1_000):
        queue.load(keys.table(min(1_000, known - first)))
    for size, times in SIZES.items():
        before = bytes_of(store)
        tables = [keys.table(size) for _ in range(times)]
        cost, other = (
            statistics.median(measured(meter, lambda: load(q, table)) for table in tables)  # noqa: B023
            for q in (queue, without)
        )
        line = f"{known:,} known, loads of {size:,}: {cost:,.1f} ms of CPU, without {other:,.1f}"
        if size == MANY:
            size_of_key = (bytes_of(store) - before) / MANY
            line += f", plain {measured(meter, lambda: plain(store, keys, tables[0])):,.1f}"  # noqa: B023
            line += f"; {size_of_key:,.0f} bytes per key"
        yield line
    again = measured(meter, lambda: load(queue, tables[0]))
    yield f"{known:,} known, the same million again: {again:,.1f} ms of CPU"
    store.catalog.write(age)
    yield f"forget them: {measured(meter, lambda: purge(store.catalog)):,.1f} ms of CPU"


def load(queue: Queue, table: pa.Table) -> None:
    """Load a table."""
    queue.load(table)


def measured(meter: Meter, work: Callable[[], object]) -> float:
    """Return the CPU milliseconds of work."""
    before = meter.now()
    work()
    return meter.since(before).cpu


def plain(store: Store, keys: Keys, table: pa.Table) -> None:
    """Insert keys into a table of its own."""
    rows = [{"key": key} for key in table.column("key").to_pylist()]
    kind, values = "TEXT" if pa.types.is_string(keys.type) else "BIGINT", "VALUES (:key)"
    if store.catalog.engine.dialect.name == "postgresql":
        rows, values = (
            [{"keys": [row["key"] for row in rows]}],
            f"SELECT unnest(CAST(:keys AS {kind}[]))",
        )

    def work(connection: Connection) -> None:
        connection.execute(text(f"CREATE TABLE IF NOT EXISTS plain (key {kind} PRIMARY KEY)"))
        connection.execute(text(f"INSERT INTO plain {values} ON CONFLICT DO NOTHING"), rows)

    store.catalog.write(work)


def age(connection: Connection) -> None:
    """Let all keys be older than their window."""
    connection.execute(text("UPDATE dedup SET loaded_at = loaded_at - 31 * 86400000000"))


def bytes_of(store: Store) -> int:
    """Return the size of the keys and their indexes on a server, and else of the catalog."""
    query = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    if store.catalog.engine.dialect.name == "postgresql":
        query = "SELECT pg_total_relation_size('dedup')"
    with store.catalog.read() as connection:
        return int(connection.scalar(text(query)) or 0)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("known", nargs="*", type=int, default=[100, 10_000, MANY])
    parser.add_argument("--keys", choices=["number", "uuid"], default="number")
    add_catalog(parser)
    arguments = parser.parse_args()
    for known in arguments.known:
        with store_of(arguments) as store:
            for line in figures(store, Keys(arguments.keys), known):
                print(line, flush=True)


if __name__ == "__main__":
    main()
