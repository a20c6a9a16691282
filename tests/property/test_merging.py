"""Messages that come, go and merge one by one, compared with a plain list."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from queue_core import Store
from tests.books import audit

SCHEMA = pa.schema([("key", pa.string()), ("amount", pa.int64())])
KEYS = st.sampled_from("abcdefgh")


@dataclass
class Message:
    """A message in main, at its place."""

    id: int
    key: str
    amount: int
    fired: bool = False


class Merging(RuleBasedStateMachine):
    """A queue of one shard, and the messages it should have."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="ignis-merging-")
        self.store = Store.open(self._folder.name)
        self.queue = self.store.create_queue("q", SCHEMA, shards=1, key="key")
        self.main: list[Message] = []
        self.step = 0

    @initialize()
    def begin(self) -> None:
        self.load("abcdefgh")

    @rule(keys=st.lists(KEYS, min_size=1, max_size=8))
    def load(self, keys: list[str]) -> None:
        self._load(keys, None)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=8))
    def merge(self, keys: list[str]) -> None:
        self._load(keys, "merge(sum(amount))")

    def _load(self, keys: list[str], policy: str | None) -> None:
        self.step += 1
        rows = [{"key": key, "amount": 7919 * self.step + at} for at, key in enumerate(keys)]
        ids = self.queue.load(rows, policy=policy).to_pylist()
        for id, row in zip(ids, rows, strict=True):
            queued = [m for m in self.main if m.key == row["key"] and not m.fired]
            if policy and queued:
                assert id is None
                queued[-1].amount += row["amount"]
            else:
                self.main.append(Message(id, **row))

    @rule(count=st.integers(1, 10))
    def fire(self, count: int) -> None:
        waiting = [m for m in self.main if not m.fired][:count]
        assert self.queue.fire(count).ids.to_pylist() == [m.id for m in waiting]
        for m in waiting:
            m.fired = True

    @precondition(lambda self: any(m.fired for m in self.main))
    @rule(data=st.data(), back=st.sampled_from([True, True, True, False]))
    def settle(self, data: st.DataObject, back: bool) -> None:
        held = [m for m in self.main if m.fired]
        some = data.draw(st.lists(st.sampled_from(held), min_size=1, unique_by=lambda m: m.id))
        (self.queue.reload if back else self.queue.delete)([m.id for m in some])
        for m in some:
            m.fired = False
            if not back:
                self.main.remove(m)

    @rule()
    def compact(self) -> None:
        self.queue.admin.compact()

    @invariant()
    def everything_is_at_its_place(self) -> None:
        seen = self.queue.browse().select(["_message_id", "key", "amount"])
        there = [{"_message_id": m.id, "key": m.key, "amount": m.amount} for m in self.main]
        assert seen.to_pylist() == there
        audit(self.store)

    def teardown(self) -> None:
        self.store.close()
        self._folder.cleanup()


TestMerging = Merging.TestCase
TestMerging.settings = settings(max_examples=25, stateful_step_count=20)
