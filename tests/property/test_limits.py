"""Limits compared with plain tokens, for any order of firings, settlements and passing time."""

from __future__ import annotations

import tempfile
from collections import Counter
from math import floor, inf

from hypothesis import HealthCheck, given, settings
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
    """A queue with a limit of the whole queue, or of each customer."""

    def __init__(self, store: Store, queue: Queue, *, by_customer: bool) -> None:
        self.store, self.queue = store, queue
        self.by_customer = by_customer
        #: The customers of messages in main, by their ids.
        self.waiting: dict[int, str] = {}
        self.flying: dict[int, str] = {}
        self.tokens: dict[str, Tokens] = {}
        #: Seconds that have passed by jumps of the clock.
        self.passed = 0.0

    def load(self, customers: list[str]) -> None:
        ids = self.queue.load([{"number": 0, "customer": who} for who in customers])
        self.waiting |= dict(zip(ids.to_pylist(), customers, strict=True))

    def fire(self, most: int | None) -> None:
        before = self.now()
        firing = self.queue.fire(most or "all")
        after = self.now()

        ids = firing.ids.to_pylist()
        taken = Counter(map(self.key_of, (self.waiting[id] for id in ids)))
        for key in taken:
            assert taken[key] <= self.allowed(key, after + NEARLY)
        if len(ids) < (most or inf):
            # What it has left was refused.
            for key in {*map(self.key_of, self.waiting.values())}:
                assert taken[key] >= self.allowed(key, before - NEARLY)
        if not ids:
            assert (firing.opens_in is not None) == bool(self.waiting)
        else:
            at = firing.ticket.fired_at / 1e6 + self.passed
            for key, count in taken.items():
                self.tokens_of(key).spend(at, count)
        self.flying |= {id: self.waiting.pop(id) for id in ids}

    def settle(self, verb: str, step: int) -> None:
        ids = list(self.flying)[::step]
        getattr(self.queue, verb)(ids)
        back = {id: self.flying.pop(id) for id in ids}
        # The tokens stay spent.
        self.waiting |= back if verb == "reload" else {}

    def wait(self, seconds: int) -> None:
        jump(self.store, seconds / DAY)
        self.passed += seconds

    def check(self) -> None:
        flying = Counter(map(self.key_of, self.flying.values()))
        assert all(count <= IN_FLIGHT for count in flying.values())
        (row,) = self.store.view("queues").to_pylist()
        assert (row["waiting"], row["in_flight"]) == (len(self.waiting), len(self.flying))

    def now(self) -> float:
        return self.store.catalog.now() / 1e6 + self.passed

    def key_of(self, customer: str) -> str:
        return customer if self.by_customer else ""

    def tokens_of(self, key: str) -> Tokens:
        return self.tokens.setdefault(key, Tokens())

    def allowed(self, key: str, at: float) -> int:
        """How many messages of a key may be fired and are there."""
        flying = sum(self.key_of(each) == key for each in self.flying.values())
        waiting = sum(self.key_of(each) == key for each in self.waiting.values())
        tokens = floor(self.tokens_of(key).there(at) + NEARLY)
        return max(min(IN_FLIGHT - flying, tokens, waiting), 0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(by_customer=st.booleans(), steps=STEPS)
def test_no_firing_exceeds_a_limit_and_none_wastes_it(by_customer: bool, steps) -> None:
    column = ["customer"] if by_customer else []
    limits = limit(*column, per_second=1 / EACH, in_flight=IN_FLIGHT, window=WINDOW)
    with tempfile.TemporaryDirectory() as path, Store.open(path) as store:
        queue = make_queue(store, shards=2, limits=limits, categories=["customer"])
        model = Model(store, queue, by_customer=by_customer)
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
