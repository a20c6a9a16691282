"""Many producers and consumers of the same keys: it ends as some order of all of them would."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import text

from queue_core import Store
from queue_core.values.address import Address
from tests.books import audit
from tests.children import Child, Journal

pytestmark = pytest.mark.crash

SCHEMA = pa.schema([("key", pa.int64()), ("amount", pa.int64()), ("producer", pa.int64())])
KEYS, ROWS = 12, 6
DEADLOCKS = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


def produce(address: Address, path: Path, number: int, loads: int) -> None:
    source, journal = random.Random(number), Journal(path)
    with Store(address) as store:
        queue = store.queue("smart")
        for _ in range(loads):
            rows = [
                {"key": source.randrange(KEYS), "amount": source.randrange(9), "producer": number}
                for _ in range(source.randint(1, ROWS))
            ]
            ids = queue.load(rows)
            journal.write("loaded", amount=sum(row["amount"] for row in rows), out=ids.null_count)
        journal.write("done")


def consume(address: Address, path: Path, producers: int) -> None:
    journal = Journal(path)
    with Store(address) as store:
        queue = store.queue("smart")
        while len(journal.read("done")) < producers:
            firing = queue.fire(3, timeout=0.05)
            rows = firing.messages.to_pylist()
            if rows and random.random() < 0.3:
                queue.reload(firing)
            elif rows:
                queue.delete(firing)
                journal.write("took", amount=sum(row["amount"] for row in rows))


def run(address: Address, folder: Path, loads: int, producers: int, consumers: int) -> Journal:
    journal = Journal(folder / "journal")
    children = [
        Child(produce, address, journal.path, at, loads, log=folder / f"producer-{at}")
        for at in range(producers)
    ]
    children += [
        Child(consume, address, journal.path, producers, log=folder / f"consumer-{at}")
        for at in range(consumers)
    ]
    for child in children:
        assert child.wait() == 0, child.output()
    return journal


def count(store: Store, name: str) -> int:
    return sum(store.queue("smart").metadata().column(name).to_pylist())


@pytest.fixture
def make(store: Store) -> Any:
    return lambda policy: store.create_queue("smart", SCHEMA, shards=3, key="key", policy=policy)


@pytest.fixture(params=[20, pytest.param(100, marks=pytest.mark.slow)])
def loads(request: pytest.FixtureRequest) -> int:
    """How often each producer loads."""
    return int(request.param)


def check_end(store: Store, journal: Journal) -> None:
    audit(store)
    out = sum(entry["out"] for entry in journal.read("loaded"))
    assert count(store, "ignored") == out
    if store.catalog.file is None:
        with store.catalog.read() as connection:
            assert connection.scalar(DEADLOCKS) == 0


@pytest.mark.nightly
def test_sums_are_kept(make, store, address, tmp_path, loads):
    queue = make("merge(sum(amount))")
    journal = run(address, tmp_path, loads, producers=3, consumers=2)
    loaded = sum(entry["amount"] for entry in journal.read("loaded"))
    took = sum(entry["amount"] for entry in journal.read("took"))
    assert took + sum(queue.browse().column("amount").to_pylist()) == loaded
    check_end(store, journal)


def test_one_of_each_key_waits_at_most(make, store, address, tmp_path, loads):
    queue = make("latest")
    journal = run(address, tmp_path, loads, producers=4, consumers=0)
    waiting = Counter(queue.browse().column("key").to_pylist())
    assert set(waiting.values()) == {1}
    assert count(store, "loaded") == len(waiting) + count(store, "replaced")
    check_end(store, journal)


def test_nobody_is_loaded_twice(make, store, address, tmp_path, loads):
    queue = make(None)
    queue.admin.change_settings(dedup=("key", "amount"))
    journal = run(address, tmp_path, loads, producers=4, consumers=2)
    there = queue.browse().select(["key", "amount"]).to_pylist()
    keys = [(row["key"], row["amount"]) for row in there]
    assert len(keys) == len(set(keys))
    assert 0 < count(store, "loaded") <= KEYS * 9
    check_end(store, journal)
