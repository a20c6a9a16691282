"""Smart loads in a store, compared step by step with Herzner's loop."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from queue_core import Queue, Store
from queue_core.policies.builtin import Latest
from queue_core.segments.shard_hash import shards_of
from tests.factories import make_queue
from tests.unit.policies import policy_reference as reference
from tests.unit.policies.policy_reference import Ask, Entry
from tests.unit.policies.policy_runs import BUILT_IN, SCHEMA, ask_by_numbers, by_numbers

SHARDS = 3


class Beside:
    """A queue, and the entries it should have."""

    def __init__(self, queue: Queue, policy: Any, ask: Ask, order: str, seed: int) -> None:
        self.queue = queue
        self.policy = policy
        self.ask = ask
        self.order = order
        self.random = random.Random(seed)
        self.entries: list[Entry] = []

    def load(self) -> None:
        rows = [self._row() for _ in range(self.random.choice([1, 2, 5, 30]))]
        ids = self.queue.load(rows, policy=self.policy).to_pylist()
        new = [Entry(row, _shard(row), False, name) for row, name in zip(rows, ids, strict=True)]
        for entry in new:
            reference.put(self.entries, entry, "key", self.ask, self.order)
        there = [any(entry is other for other in self.entries) for entry in new]
        assert [name is not None for name in ids] == there

    def fire(self) -> None:
        taken = set(self.queue.fire(self.random.choice([1, 3, 10])).ids.to_pylist())
        for entry in self.entries:
            entry.retrieved |= entry.name in taken

    def reload(self) -> None:
        some = self._some()
        self.queue.reload([entry.name for entry in some])
        for entry in some:
            entry.retrieved = False

    def delete(self) -> None:
        some = self._some()
        self.queue.delete([entry.name for entry in some])
        self.entries = [entry for entry in self.entries if entry not in some]

    def check(self) -> None:
        there = self.queue.browse().to_pylist()
        found = [
            (row["_message_id"], row["_fired_at"] is not None, {n: row[n] for n in SCHEMA.names})
            for row in there
        ]
        expected = sorted(self.entries, key=lambda entry: entry.shard)
        assert [f[0] for f in found] == [e.name for e in expected]
        assert [f[2] for f in found] == [e.row for e in expected]

    def _some(self) -> list[Entry]:
        taken = [entry for entry in self.entries if entry.retrieved]
        return self.random.sample(taken, self.random.randint(0, len(taken)))

    def _row(self) -> dict[str, Any]:
        choose = self.random.choice
        return {
            "key": choose(range(6)),
            "kind": choose(["on", "off", None]),
            "n": choose([None, -1, 2, 3]),
            "x": choose([None, 0.0, 0.5, 2.0]),
        }


def _shard(row: dict[str, Any]) -> int:
    return int(shards_of(pa.array([row["key"]]), SHARDS)[0])


def go(beside: Beside, steps: int = 60) -> None:
    moves = [beside.load, beside.load, beside.fire, beside.reload, beside.delete]
    for _ in range(steps):
        beside.random.choice(moves)()
        beside.check()


def one_of_each() -> Iterator[Any]:
    """Yield the policies; the gate runs one of each name and order, and all without a store."""
    seen: set[tuple[str, str]] = set()
    for text, ask, order in BUILT_IN:
        kind = text.partition("(")[0], order
        marks = [pytest.mark.nightly] if kind in seen else []
        seen.add(kind)
        yield pytest.param(text, ask, order, id=text, marks=marks)


@pytest.mark.parametrize(("text", "ask", "order"), list(one_of_each()))
def test_a_queue_has_the_entries_of_the_loop(store: Store, text: str, ask: Ask, order: str) -> None:
    queue = make_queue(store, schema=SCHEMA, key="key", shards=SHARDS, policy=text)
    go(Beside(queue, None, ask, order, seed=7))


def test_a_check_of_your_own(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, key="key", shards=SHARDS)

    def check(new: Any, queued: Any) -> Any:
        return by_numbers(new, queued, queued["_retrieved"], queued["_distance"])

    go(Beside(queue, check, ask_by_numbers, "newest", seed=3))


@pytest.mark.parametrize("policy", ["latest", "merge(sum(n), max(x), last(kind))"])
def test_many_messages_of_many_keys(store: Store, policy: str) -> None:
    """The loop runs for each key on its own, to be fast enough."""
    queue = make_queue(store, schema=SCHEMA, key="key", shards=SHARDS, policy=policy)
    asks = {text: ask for text, ask, _ in BUILT_IN}
    source = np.random.default_rng(1)
    expected: dict[int, list[Entry]] = {}
    for count in (20_000, 3, 10_000):
        rows = _rows(source, count)
        ids = queue.load(rows).to_pylist()
        for row, name in zip(rows.to_pylist(), ids, strict=True):
            same = expected.setdefault(row["key"], [])
            reference.put(same, Entry(row, 0, False, name), "key", asks[policy])
    found = {row["_message_id"]: row for row in queue.browse().to_pylist()}
    there = {entry.name: entry.row for entries in expected.values() for entry in entries}
    assert {name: {n: row[n] for n in SCHEMA.names} for name, row in found.items()} == there


def _rows(source: np.random.Generator, count: int) -> pa.Table:
    return pa.table(
        {
            "key": source.integers(0, 8_000, count),
            "kind": pa.array(["on", "off"]).take(pa.array(source.integers(0, 2, count))),
            "n": source.integers(0, 5, count).astype(np.int32),
            "x": source.integers(0, 9, count).astype(np.float64),
        },
        schema=SCHEMA,
    )


def test_a_policy_as_a_value_is_as_good_as_its_text(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, key="key")
    rows = [{"key": 1, "n": n} for n in range(3)]
    assert queue.load(rows, policy=Latest()).null_count == 2
    assert queue.load(rows).null_count == 0


def test_messages_reloaded_one_by_one_merge_by_their_keys(store: Store) -> None:
    """Their slices interleave, and they are rewritten one after the other."""
    queue = make_queue(store, schema=SCHEMA, key="key", policy="merge(sum(n))")
    queue.load([{"key": key, "n": 10**key} for key in range(6)])
    ids = queue.fire("all").ids.to_pylist()
    for back in (ids[2:3], ids[:2] + ids[3:]):
        queue.reload(back)
    for key in (0, 2, 5, 2):
        queue.load([{"key": key, "n": 7} for key in {key, 5}])
        assert queue.browse().column("key").to_pylist() == list(range(6))
    found = queue.browse().column("n").to_pylist()
    assert found == [1 + 7, 10, 100 + 14, 1000, 10_000, 100_000 + 28]
