"""Limits compared with plain tokens, for any order of firings, settlements and passing time."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle
from math import floor, inf
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_core import Queue, Store, limit
from tests.clocks import jump
from tests.factories import make_queue

#: Seconds in which a token comes, those whose tokens are kept, and the most messages in flight.
EACH, WINDOW, IN_FLIGHT = 2.0, 12.0, 4
#: A part of a token: a firing takes a moment.
NEARLY = 0.01
DAY = 86_400

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("load"), st.lists(st.sampled_from("abc"), min_size=1, max_size=8)),
        st.tuples(st.just("fire"), st.one_of(st.none(), st.integers(1, 9))),
        st.tuples(st.sampled_from(["delete", "reload", "sideline"]), st.integers(1, 3)),
        st.tuples(st.just("pass"), st.integers(1, 30)),
    ),
    min_size=8,
    max_size=30,
)


class Tokens:
    """A bucket as a number of tokens, and the firings that it has allowed."""

    def __init__(self) -> None:
        self.most = WINDOW / EACH
        self.left, self.at = self.most, -inf
        self.fired: list[tuple[float, int]] = []

    def there(self, at: float) -> float:
        return min(self.left + (at - self.at) / EACH, self.most)

    def spend(self, at: float, count: int) -> None:
        self.left, self.at = self.there(at) - count, at
        self.fired.append((at, count))
        # In no span of time, more were fired than came in it and were kept before.
        total = 0
        for earlier, some in reversed(self.fired):
            total += some
            assert total <= self.most + (at - earlier) / EACH + NEARLY


class Model:
    """A queue with a limit of the whole queue, or of each customer; or two that share a limit."""

    def __init__(self, store: Store, queues: Sequence[Queue], *, by_customer: bool) -> None:
        self.store, self.queues = store, queues
        #: Each step is one of the next queue.
        self.turns = cycle(queues)
        self.by_customer = by_customer
        #: The customers of messages in main, by their queues and ids.
        self.waiting: dict[tuple[str, int], str] = {}
        self.flying: dict[tuple[str, int], str] = {}
        self.tokens: dict[str, Tokens] = {}
        #: Seconds that have passed by jumps of the clock.
        self.passed = 0.0

    def load(self, customers: list[str]) -> None:
        queue = next(self.turns)
        ids = queue.load([{"number": 0, "customer": who} for who in customers]).to_pylist()
        names = [(queue.name, id) for id in ids]
        self.waiting |= dict(zip(names, customers, strict=True))

    def fire(self, most: int | None) -> None:
        queue, before = next(self.turns), self.now()
        firing = queue.fire(most or "all")
        after = self.now()

        ids = [(queue.name, id) for id in firing.ids.to_pylist()]
        here = {id: who for id, who in self.waiting.items() if id[0] == queue.name}
        taken = Counter(map(self.key_of, (self.waiting[id] for id in ids)))
        for key in taken:
            assert taken[key] <= self.allowed(key, after + NEARLY, here)
        if len(ids) < (most or inf):
            # What it has left was refused.
            for key in {*map(self.key_of, here.values())}:
                assert taken[key] >= self.allowed(key, before - NEARLY, here)
        if not ids:
            assert (firing.opens_in is not None) == bool(here)
        else:
            at = firing.ticket.fired_at / 1e6 + self.passed
            for key, count in taken.items():
                self.tokens_of(key).spend(at, count)
        self.flying |= {id: self.waiting.pop(id) for id in ids}

    def settle(self, verb: str, step: int) -> None:
        ids = list(self.flying)[::step]
        for queue in self.queues:
            getattr(queue, verb)([id for name, id in ids if name == queue.name])
        back = {id: self.flying.pop(id) for id in ids}
        # The tokens stay spent.
        self.waiting |= back if verb == "reload" else {}

    def wait(self, seconds: int) -> None:
        jump(self.store, seconds / DAY)
        self.passed += seconds

    def check(self) -> None:
        flying = Counter(map(self.key_of, self.flying.values()))
        assert all(count <= IN_FLIGHT for count in flying.values())
        for row in self.store.view("queues").to_pylist():
            held = [
                sum(name == row["queue"] for name, _ in of) for of in (self.waiting, self.flying)
            ]
            assert [row["waiting"], row["in_flight"]] == held

    def now(self) -> float:
        return self.store.catalog.now() / 1e6 + self.passed

    def key_of(self, customer: str) -> str:
        return customer if self.by_customer else ""

    def tokens_of(self, key: str) -> Tokens:
        return self.tokens.setdefault(key, Tokens())

    def allowed(self, key: str, at: float, here: Mapping[Any, str]) -> int:
        """How many messages of a key may be fired and are there."""
        flying = sum(self.key_of(each) == key for each in self.flying.values())
        waiting = sum(self.key_of(each) == key for each in here.values())
        tokens = floor(self.tokens_of(key).there(at) + NEARLY)
        return max(min(IN_FLIGHT - flying, tokens, waiting), 0)


@settings(max_examples=settings.default.max_examples // 2)
@given(of=st.sampled_from(["queue", "customer", "name"]), steps=STEPS)
def test_no_firing_exceeds_a_limit_and_none_wastes_it(of: str, steps) -> None:
    whose = {"column": "customer"} if of == "customer" else {"name": "crm"} if of == "name" else {}
    limits = limit(**whose, per_second=1 / EACH, in_flight=IN_FLIGHT, window=WINDOW)
    with tempfile.TemporaryDirectory() as path, Store.open(path) as store:
        queues = [
            make_queue(store, name, shards=2, limits=limits, categories=["customer"])
            for name in (("a", "b") if of == "name" else ("a",))
        ]
        model = Model(store, queues, by_customer=of == "customer")
        for verb, given in steps:
            match verb:
                case "load":
                    model.load(given)
                case "fire":
                    model.fire(given)
                case "pass":
                    model.wait(given)
                case _:
                    model.settle(verb, given)
            model.check()
