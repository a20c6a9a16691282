"""Processes are killed by some messages, in any order of events: each killer is found, alone."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queue_core import Queue, Store
from queue_core.values.address import Address
from queue_core.values.model import HandlingConsumer
from queue_core.verbs.lose import start_again
from queue_core.waiting.firing import Firing
from tests.factories import aside, make_queue, numbers_of, orders

#: Kinds of queues, by what orders their messages.
KINDS = {
    "plain": {"shards": 2},
    "fair": {"shards": 2, "fair_by": "customer"},
    "grouped": {"shards": 2, "group": "customer"},
    "urgent": {"shards": 2, "priority": "number"},
}
MOST = 24


@dataclass
class Pool:
    """A process with handlers, and what its workers hold."""

    name: str
    life: HandlingConsumer | None = None
    hands: list[Firing] = field(default_factory=list)


@dataclass
class Search:
    """A queue, its killers, and what became of its messages."""

    store: Store
    queue: Queue
    killers: frozenset[int]
    deaths: int = 0
    handled: list[int] = field(default_factory=list)

    def fire(self, pool: Pool, limit: int) -> None:
        """A worker fires; the process starts before, if it has died."""
        if pool.life is None:
            pool.life = start_again(self.store.catalog, pool.name)
        firing = self.queue.fire(limit, consumer=pool.life)
        if firing:
            pool.hands.append(firing)

    def handle(self, pool: Pool, at: int, *, one_by_one: bool) -> None:
        """A worker handles what it holds, and settles it, unless a message ends the process."""
        firing = pool.hands.pop(at)
        numbers = numbers_of(firing.messages)
        ids = firing.messages.column("_message_id")
        for place, number in enumerate(numbers):
            if number in self.killers:
                self.deaths += 1
                pool.life = None
                pool.hands.clear()
                return
            self.handled.append(number)
            if one_by_one:
                assert self.queue.delete(ids.slice(place, 1), consumer=pool.life) == 1
        if not one_by_one:
            assert self.queue.delete(firing) == len(numbers)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=settings.default.max_examples // 10, suppress_health_check=list(HealthCheck))
@given(
    count=st.integers(1, MOST),
    killers=st.frozensets(st.integers(0, MOST - 1), min_size=1, max_size=3),
    pools=st.integers(1, 3),
    data=st.data(),
)
def test_each_killer_is_sidelined_and_nobody_else(kind, count, killers, pools, data):
    killers = frozenset(number % count for number in killers)
    with tempfile.TemporaryDirectory() as folder, Store(Address.of(Path(folder))) as store:
        queue = make_queue(store, **KINDS[kind])
        queue.load(orders(count, customers=5))
        search = Search(store, queue, killers)
        run(search, [Pool(f"pool-{number}") for number in range(pools)], data)

        assert aside(queue) == sorted(killers)
        assert set(queue.failures().column("kind").to_pylist()) == {"killed"}
        assert set(search.handled) == set(range(count)) - killers
        assert search.deaths <= len(killers) * (math.log2(count) + 3)
        assert store.admin.fsck().num_rows == 0
        if kind == "grouped":
            of_group = defaultdict(list)
            for number in search.handled:
                of_group[number % 5].append(number)
            # A message may be handled again, but none before it.
            for group, numbers in of_group.items():
                assert numbers == sorted(numbers), f"group {group}"


def run(search: Search, pools: list[Pool], data: st.DataObject) -> None:
    """Let chance choose who does what next, until nothing is left."""
    choose = data.draw(st.randoms(use_true_random=False))
    limit = choose.randrange(1, MOST + 1)
    one_by_one = choose.random() < 0.5
    for _ in range(60 * MOST):
        pool = choose.choice(pools)
        if pool.hands and choose.random() < 0.5:
            search.handle(pool, choose.randrange(len(pool.hands)), one_by_one=one_by_one)
        else:
            search.fire(pool, limit)
        if not any(each.hands for each in pools) and not search.queue.browse().num_rows:
            # Somebody may have died last, with a killer alone.
            for each in pools:
                start_again(search.store.catalog, each.name)
            return
    raise AssertionError(f"something is left: {numbers_of(search.queue.browse())}")
