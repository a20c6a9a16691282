"""Verbs of several readers of one log in any order: each reader gets each message exactly once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queue_core import Queue, Store
from queue_core.catalog.slices import log_merging, rewritable
from queue_core.segments import stager
from queue_core.values.address import Address
from queue_core.values.model import Magazine, State
from queue_core.verbs import take_in, trim
from tests.books import audit
from tests.dump import log_earlier, log_in_a_minute
from tests.factories import make_queue, orders
from tests.model import journal
from tests.model.conformance import Checker
from tests.property.test_invariants import catalogs, check

SHARDS = 2
READERS = ("billing", "shipping", "late")
#: Whoever can hold messages: the root has outcomes, too.
ALL = ("orders", *READERS, "again", "copy")
#: How to choose the messages of a firing.
WAYS = {
    "any": {},
    "even": {"selector": "number % 2 = 0"},
    "last": {"order_by": "number DESC"},
}


class Readers(RuleBasedStateMachine):
    """A queue with a log, its subscriptions, and what each of them still has to do."""

    def __init__(self, new_address: Callable[[], Address]) -> None:
        super().__init__()
        self.stack = ExitStack()
        for name, size in {"CHUNK_ROWS": 3, "INLINE_BYTES": 150}.items():
            self.stack.enter_context(mock.patch.object(stager, name, size))
        self.stack.enter_context(mock.patch.object(rewritable, "NEIGHBOURS", 2))
        self.stack.enter_context(mock.patch.object(log_merging, "NEIGHBOURS", 2))
        self.stack.enter_context(mock.patch.object(take_in, "ROUND_SLICES", 2))
        self.stack.enter_context(mock.patch.object(trim, "ROUND_ROWS", 2))
        self.store = Store(new_address())
        self.stack.enter_context(journal.marks())
        journal.install(self.store)
        self.topic = make_queue(self.store, shards=SHARDS, key="customer", log="1 hour")
        self.number = 0
        #: All ids, in the order of loading, and those that each queue is to have still.
        self.loaded: list[int] = []
        self.left: dict[str, set[int]] = {"orders": set()}
        #: What each holds, in the order of firing.
        self.held: dict[str, list[int]] = {name: [] for name in ALL}
        #: Those that get nothing more.
        self.ended: set[str] = set()
        #: What each snapshot is to bring back: messages, and how many were loaded before it.
        self.kept: dict[str, tuple[set[int], int]] = {}

    def teardown(self) -> None:
        for name in self.left:
            self.finish(name)
        for name in sorted(set(self.left) - {"orders"}):
            # Their snapshots keep what they have.
            self.store.queue(name).admin.deactivate()
            self.store.queue(name).admin.drop()
        log_earlier(self.store, 3_601)
        self.topic.admin.trim()
        self.store.admin.vacuum(grace=0)
        assert self.store.storage.list() == {}
        assert self.store.admin.fsck(deep=True).to_pylist() == []
        Checker().check(journal.read(self.store))
        self.store.close()
        self.stack.close()

    def finish(self, name: str) -> None:
        """Whatever has happened, the rest can be had, once."""
        queue = self.store.queue(name)
        queue.sweep(0, dead_after=0)
        queue.shovel(force=True)
        found = []
        while len(fired := queue.fire(3)):
            found += fired.ids.to_pylist()
            assert queue.delete(fired) == len(fired)
        assert sorted(found) == sorted(self.left[name])

    def readers(self) -> list[str]:
        return sorted(self.left)

    @rule(count=st.integers(1, 8), customers=st.integers(1, 4))
    def load(self, count: int, customers: int) -> None:
        ids = self.topic.load(orders(count, self.number, customers=customers)).to_pylist()
        self.number += count
        self.loaded += ids
        for name in self.left.keys() - self.ended:
            self.left[name].update(ids)

    @precondition(lambda self: not self.left.keys() >= {*READERS})
    @rule(latest=st.booleans())
    def subscribe(self, latest: bool) -> None:
        name = next(name for name in READERS if name not in self.left)
        reader = self.store.subscribe(
            name, to="orders", start="latest" if latest else "earliest", retry=None
        )
        self.left[name] = set() if latest else self.all_of(reader)

    def all_of(self, reader: Queue) -> set[int]:
        """What was trimmed is gone; what is left is the end of each shard."""
        ids = reader.browse().column("_message_id").to_pylist()
        assert set(ids) <= set(self.loaded)
        return set(ids)

    @precondition(lambda self: "again" not in self.left)
    @rule(data=st.data())
    def replay(self, data) -> None:
        again = self.store.queue(data.draw(st.sampled_from(self.readers()))).replay("again")
        self.left["again"] = self.all_of(again)
        self.ended.add("again")

    @precondition(lambda self: "copy" not in self.left)
    @rule(data=st.data())
    def clone(self, data) -> None:
        name = data.draw(st.sampled_from(self.readers()))
        self.store.queue(name).clone("copy")
        self.left["copy"] = self.left[name] - set(self.held[name])
        self.ended.add("copy")

    @precondition(lambda self: len(self.left) > 1)
    @rule(data=st.data())
    def snapshot(self, data) -> None:
        name = data.draw(st.sampled_from(sorted({*self.left} - {"orders"})))
        if name not in self.kept:
            assert self.store.queue(name).admin.snapshot("kept").messages == len(self.left[name])
            self.kept[name] = (set(self.left[name]), len(self.loaded))

    @precondition(lambda self: len(self.left) > 1)
    @rule(data=st.data(), to=st.sampled_from(["earliest", "latest", "kept"]))
    def seek(self, data, to: str) -> None:
        name = data.draw(st.sampled_from(sorted({*self.left} - {"orders"})))
        if (name not in self.kept) if to == "kept" else (name in self.ended):
            return
        queue = self.store.queue(name)
        queue.admin.pause()
        found = queue.admin.seek(to, force=True)
        assert found.removed <= len(self.left[name])
        queue.admin.resume()
        if to == "kept":
            kept, loaded = self.kept[name]
            self.left[name] = kept | set([] if name in self.ended else self.loaded[loaded:])
        else:
            self.left[name] = set() if to == "latest" else self.all_of(queue)
        self.held[name] = []
        assert found.messages == len(self.left[name])

    @rule(data=st.data(), count=st.integers(1, 6), way=st.sampled_from(sorted(WAYS)))
    def fire(self, data, count: int, way: str) -> None:
        name = data.draw(st.sampled_from(self.readers()))
        queue = self.store.queue(name)
        ids = queue.fire(count, **WAYS[way], consumer=self.store.consumer(name)).ids.to_pylist()
        assert len(ids) == len(set(ids))
        assert set(ids) <= self.left[name] - set(self.held[name])
        self.held[name] += ids

    @rule(data=st.data(), outcome=st.sampled_from(["delete", "sideline", "reload"]))
    def settle(self, data, outcome: str) -> None:
        name = data.draw(st.sampled_from(self.readers()))
        count = data.draw(st.integers(0, len(self.held[name])))
        ids, self.held[name] = self.held[name][:count], self.held[name][count:]
        queue, who = self.store.queue(name), self.store.consumer(name)
        assert getattr(queue, outcome)(ids, consumer=who) == len(ids)
        if outcome == "delete":
            self.left[name] -= set(ids)

    @rule(data=st.data())
    def shovel(self, data) -> None:
        self.store.queue(data.draw(st.sampled_from(self.readers()))).shovel()

    @rule(data=st.data())
    def compact(self, data) -> None:
        self.store.queue(data.draw(st.sampled_from(self.readers()))).admin.compact()

    @rule()
    def merge(self) -> None:
        log_in_a_minute(self.store)
        self.topic.admin.compact()

    @rule(aged=st.booleans())
    def trim(self, aged: bool) -> None:
        if aged:
            log_earlier(self.store, 3_601)
        self.topic.admin.trim()

    @rule()
    def vacuum(self) -> None:
        self.store.admin.vacuum(grace=0)

    @rule(column=st.sampled_from(["x", "y"]))
    def add_column(self, column: str) -> None:
        if column not in self.topic.schema.names:
            wider = orders(0).schema.append(orders(0).schema.field("amount").with_name(column))
            self.topic.admin.add_columns(wider)
            self.topic = self.store.queue("orders")

    @invariant()
    def what_each_has_is_what_it_is_to_have(self) -> None:
        books = audit(self.store)
        figures = self.store.view("queues").to_pylist()
        for row in figures:
            name = row["queue"]
            there = books.of_queues.get(self.store.queue(name).info.id, {})
            assert set(there) <= self.left[name]
            fired = {at for at, (_, state) in there.items() if state is State.FIRED}
            assert fired == set(self.held[name])
            aside = sum(magazine is Magazine.SIDELINE for magazine, _ in there.values())
            assert row["waiting"] + row["in_flight"] + aside == len(self.left[name])


@catalogs
def test_each_reader_gets_each_message_once(new_address, request):
    on_sqlite = "sqlite" in request.node.name
    examples = settings.default.max_examples // (6 if on_sqlite else 13)
    check(lambda: Readers(new_address), examples=examples, steps=25)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@catalogs
def test_each_reader_gets_each_message_once_for_long(new_address, request):
    examples = 300 if "sqlite" in request.node.name else 75
    check(lambda: Readers(new_address), examples=examples, steps=60)
