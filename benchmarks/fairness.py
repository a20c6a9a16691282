"""Fair shares: when small tenants are served beside a large one, and what turns cost.

    python -m benchmarks.fairness               # all rows, on SQLite
    python -m benchmarks.fairness position      # one row
    python -m benchmarks.fairness --postgresql position

`position`: one tenant with a million messages and 99 with 10 each, loaded together, and the large
one first; after which part of the work the last of the 990 is fired. `cost`: CPU of firings from a
fair and from an unfair queue, in turn in one run. `tenants`: the same with 10,000 tenants. `alone`:
the same with tenants that load one message at a time. `load`: CPU of loads into both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.arguments import add_catalog, add_names, store_of
from queue_core import Queue, Store

SCHEMA = pa.schema([("tenant", pa.string()), ("number", pa.int64()), ("body", pa.string())])
BATCH = 1000
#: Loads of one message.
MANY = 5000


def rows(tenants: np.ndarray, first: int = 0) -> pa.Table:
    """Messages of about 100 bytes of these tenants."""
    names = pa.array([f"tenant-{number}" for number in range(int(tenants.max()) + 1)])
    body = pa.array(["x" * 70]).take(pa.array(np.zeros(len(tenants), dtype=np.int64)))
    numbers = np.arange(first, first + len(tenants))
    return pa.table([names.take(pa.array(tenants)), numbers, body], schema=SCHEMA)


def large_and_small(small_first: bool = False) -> list[pa.Table]:
    """A million messages of one tenant, and 10 of each of 99 others."""
    large = rows(np.zeros(1_000_000, dtype=np.int64))
    small = rows(np.repeat(np.arange(1, 100), 10))
    return [small, large] if small_first else [large, small]


def both(store: Store, name: str, shards: int = 8, key: str | None = "tenant") -> list[Queue]:
    """A fair and an unfair queue."""
    fair = store.create_queue(f"fair-{name}", SCHEMA, shards=shards, key=key, fair_by="tenant")
    return [fair, store.create_queue(f"unfair-{name}", SCHEMA, shards=shards, key=key)]


def position(store: Store) -> Iterator[str]:
    """Yield at which part of the work the last of the 990 is fired."""
    for together in (True, False):
        tables = large_and_small()
        for queue in both(store, f"position-{together}"):
            for table in [pa.concat_tables(tables)] if together else tables:
                queue.load(table)
            fired = last = small = 0
            while small < 990:
                firing = queue.fire(BATCH)
                tenants = firing.messages.column("tenant").to_numpy(zero_copy_only=False)
                found = np.flatnonzero(tenants != "tenant-0")
                small += len(found)
                fired += len(tenants)
                last = fired if len(found) else last
                queue.delete(firing)
            how = "in one load" if together else "the large one first"
            yield f"{queue.name}, {how}: the 990 are fired within {last / 1_000_990:.3%}"


def cost(store: Store) -> Iterator[str]:
    """Yield the CPU of firings of 1,000."""
    queues = both(store, "cost")
    for queue in queues:
        for table in large_and_small():
            queue.load(table)
    yield compared("1 million of one tenant and 99 x 10", queues)


def tenants(store: Store) -> Iterator[str]:
    """Yield the CPU of firings with 10,000 tenants of 100 messages, in random order."""
    queues = both(store, "tenants")
    of = np.random.default_rng(1).permutation(np.repeat(np.arange(10_000), 100))
    for queue in queues:
        for part in np.split(of, 10):
            queue.load(rows(part))
    yield compared("10,000 tenants of 100 in 10 loads", queues)


def alone(store: Store) -> Iterator[str]:
    """Yield the CPU of firings of messages that 10,000 tenants have loaded one by one."""
    queues = both(store, "alone")
    of = np.random.default_rng(1).integers(0, 10_000, MANY)
    tables = [rows(np.array([number])) for number in of]
    spent = [0.0, 0.0]
    for table in tables:
        for at, queue in enumerate(queues):
            begin = time.process_time()
            queue.load(table)
            spent[at] += time.process_time() - begin
    yield ratio("loads of one message by 10,000 tenants", [[s / len(tables)] for s in spent])
    yield compared(f"{MANY:,} loads of one message by 10,000 tenants", queues, MANY // BATCH - 1)


def load(store: Store) -> Iterator[str]:
    """Yield the CPU of loads."""
    for name, of in {
        "1,000 messages of 1 tenant": np.zeros(1000, dtype=np.int64),
        "1,000 messages of 1,000 tenants": np.arange(1000),
        "100,000 messages of 10,000 tenants": np.arange(100_000) % 10_000,
        "1,000,000 messages of 100 tenants": np.arange(1_000_000) % 100,
    }.items():
        queues = both(store, f"load-{len(of)}-{len(np.unique(of))}")
        table, spent = rows(of), [[], []]
        for _ in range(12 if len(of) < 10**6 else 4):
            for at, queue in enumerate(queues):
                begin = time.process_time()
                queue.load(table)
                spent[at].append(time.process_time() - begin)
        yield ratio(f"load of {name}", spent)


def compared(name: str, queues: list[Queue], rounds: int = 30) -> str:
    """Compare the CPU of firings, without reading the messages."""
    spent: list[list[float]] = [[], []]
    for number in range(rounds):
        for at in (0, 1) if number % 2 else (1, 0):
            consumer = queues[at].store.consumer(f"benchmark-{queues[at].name}")
            begin = time.process_time()
            taken = fired(queues[at], consumer)
            spent[at].append(time.process_time() - begin)
            assert taken == BATCH
    return ratio(f"firing {BATCH} of {name}", spent)


def fired(queue: Queue, consumer: object) -> int:
    """Fire a batch without reading it."""
    from queue_core.selection.request import FireRequest
    from queue_core.selection.terms import Terms
    from queue_core.verbs.fire import fire

    fair = frozenset({queue.info.id} if queue.info.settings.fair_by else ())
    request = FireRequest(queue_ids=(queue.info.id,), max_messages=BATCH, terms=Terms(fair=fair))
    ticket = fire(queue.store.catalog, consumer, request).ticket  # type: ignore[arg-type]
    return 0 if ticket is None else ticket.messages


def ratio(name: str, spent: list[list[float]]) -> str:
    """Describe the CPU of both queues."""
    fair, unfair = (statistics.median(each) for each in spent)
    pairs = statistics.median(one / other for one, other in zip(*spent, strict=True))
    return f"{name}: fair {fair * 1e3:.2f} ms, unfair {unfair * 1e3:.2f} ms, ratio {pairs:.2f}"


ROWS = {each.__name__: each for each in (position, cost, tenants, alone, load)}


def main() -> None:
    """Print the chosen rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_names(parser, "rows", ROWS)
    add_catalog(parser)
    given = parser.parse_args()
    for name in given.rows:
        with store_of(given) as store:
            for line in ROWS[name](store):
                print(line, flush=True)


if __name__ == "__main__":
    main()
