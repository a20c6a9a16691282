"""Every rule of eligibility and the policies, in any order, against a list in Python."""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from queue_core import Store
from queue_core.values.schema import TIMESTAMP
from tests.books import audit

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64()),
        pa.field("who", pa.string()),
        pa.field("priority", pa.int32()),
        pa.field("_expires_at", TIMESTAMP),
        pa.field("_hold_until", TIMESTAMP),
    ]
)
PAST, FUTURE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
SELECTORS: dict[str | None, Any] = {
    None: lambda m: True,
    "number % 3 = 1": lambda m: m.number % 3 == 1,
    "priority >= 2": lambda m: m.priority is not None and m.priority >= 2,
    "who IN ('a', 'b') AND _attempt = 0": lambda m: m.who in ("a", "b"),
    "who = 'nobody'": lambda m: False,
}
ORDERS: dict[str | None, Any] = {
    None: lambda m: (),
    "number DESC": lambda m: (-m.number,),
    "who, MAX(priority)": lambda m: (m.who, m.priority is None, -(m.priority or 0)),
}


@dataclass
class Message:
    """One that is in main, at its place."""

    id: int
    shard: int
    number: int
    who: str
    priority: int | None
    expires: datetime | None
    holds: datetime | None
    fired: bool = False

    @property
    def wanted(self) -> bool:
        """Whether it may be fired now, as far as it says itself."""
        return self.expires is not PAST and self.holds is not FUTURE

    @property
    def is_queued(self) -> bool:
        """Whether a new message meets it: in flight or expired, it is not there for a policy."""
        return not self.fired and self.expires is not PAST


def latest(new: Message, queued: list[Message], main: list[Message]) -> bool:
    if queued:
        main.remove(queued[-1])
    return True


def duplicates(new: Message, queued: list[Message], main: list[Message]) -> bool:
    return not queued


def merged(
    both: Callable[[int, int], int], new: Message, queued: list[Message], main: list[Message]
) -> bool:
    if queued:
        queued[-1].number = new.number
        if new.priority is not None:
            queued[-1].priority = both(new.priority, queued[-1].priority or 0)
    return not queued


def annihilated(new: Message, queued: list[Message], main: list[Message]) -> bool:
    ones = [m for m in queued if m.priority == 1]
    if new.priority != 2 or not ones:
        return True
    main.remove(ones[-1])
    return False


#: Each says what becomes of what is there, and whether the new message is queued.
POLICIES: dict[str | None, Any] = {
    None: lambda *_: True,
    "latest": latest,
    "drop_duplicates(who)": duplicates,
    "merge(max(priority), last(number))": partial(merged, max),
    "merge(sum(priority), last(number))": partial(merged, operator.add),
    "annihilate(priority = 1, priority = 2)": annihilated,
}


def messages(expires: list[datetime | None]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Rows, without their numbers."""
    row = st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from([None, 1, 2, 3]),
        st.sampled_from(expires),
        st.sampled_from([None, None, PAST, FUTURE]),
    )
    return st.lists(row, min_size=1, max_size=12)


MESSAGES = messages([None, None, FUTURE, PAST])
FRESH = messages([None, FUTURE])


class Eligibility(RuleBasedStateMachine):
    """A queue, and all that is in main in order of loading."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="ignis-eligibility-")
        self.store = Store.open(self._folder.name)
        self.main: list[Message] = []
        self.number = 0

    @initialize(
        group=st.sampled_from([None, "who"]),
        priority=st.sampled_from([None, "priority"]),
        categories=st.sampled_from([(), ("who",), ("who", "priority")]),
        attributes=st.sampled_from([(), ("number", "priority")]),
    )
    def create(self, **given: Any) -> None:
        self.group, self.priority = given["group"], given["priority"]
        self.queue = self.store.create_queue("q", SCHEMA, shards=2, key="who", **given)

    @rule(rows=MESSAGES)
    def load(self, rows: list[tuple[Any, ...]]) -> None:
        self._load(rows, None)

    @rule(rows=FRESH, policy=st.sampled_from([policy for policy in POLICIES if policy]))
    def load_by_policy(self, rows: list[tuple[Any, ...]], policy: str) -> None:
        self._load(rows, policy)

    def _load(self, rows: list[tuple[Any, ...]], policy: str | None) -> None:
        columns = ["who", "priority", "_expires_at", "_hold_until"]
        numbered = range(self.number, self.number + len(rows))
        self.number += len(rows)
        loaded = [
            {"number": number, **dict(zip(columns, row, strict=True))}
            for number, row in zip(numbered, rows, strict=True)
        ]
        ids = self.queue.load(loaded, policy=policy).to_pylist()
        seen = self.queue.browse()
        shards = dict(zip(seen["_message_id"].to_pylist(), seen["_shard"].to_pylist(), strict=True))
        new = [Message(0, 0, number, *row) for number, row in zip(numbered, rows, strict=True)]
        for message in new:
            queued = [m for m in self.main if m.who == message.who and m.is_queued]
            if POLICIES[policy](message, queued, self.main):
                self.main.append(message)
        for id, message in zip(ids, new, strict=True):
            assert (id is not None) == (message in self.main)
            if id is not None:
                message.id, message.shard = id, shards[id]
        known = {m.id: (m.number, m.priority) for m in self.main}
        columns = ["_message_id", "number", "priority"]
        found = zip(*(seen[name].to_pylist() for name in columns), strict=True)
        assert {id: tuple(values) for id, *values in found} == known

    @rule(
        count=st.one_of(st.none(), st.integers(1, 8)),
        selector=st.sampled_from(list(SELECTORS)),
        order=st.sampled_from(list(ORDERS)),
        fallback=st.booleans(),
    )
    def fire(
        self, count: int | None, selector: str | None, order: str | None, fallback: bool
    ) -> None:
        heads = self._heads()
        asked = [m for m in heads if SELECTORS[selector](m)]
        if not asked and fallback:
            asked = heads
        wanted = {"selector": selector, "order_by": order, "fallback": fallback}
        peeked = self.queue.peek(count or 1000, selector=selector, order_by=order)
        firing = self.queue.fire(count or "all", **wanted)
        taken = [self._known(id) for id in firing.ids.to_pylist()]
        assert len(taken) == min(len(asked), count or len(asked))
        assert all(m in asked for m in taken)
        if peeked.num_rows:
            assert peeked["_message_id"].to_pylist() == firing.ids.to_pylist()
        keys = sorted(self._key(order, m) for m in asked)
        assert sorted(self._key(order, m) for m in taken) == keys[: len(taken)] or not keys[0]
        for m in taken:
            # Nothing that is older in the shard, and of no worse order, was left behind.
            left = [o for o in asked if o not in taken and o.shard == m.shard]
            assert not [
                o
                for o in left
                if self._key(order, o) == self._key(order, m) and self._is_older(o, m)
            ]
        for m in taken:
            m.fired = True

    @precondition(lambda self: any(m.fired for m in self.main))
    @rule(outcome=st.sampled_from(["delete", "sideline", "reload"]), data=st.data())
    def settle(self, outcome: str, data: st.DataObject) -> None:
        held = [m for m in self.main if m.fired]
        some = data.draw(st.lists(st.sampled_from(held), min_size=1, unique_by=lambda m: m.id))
        assert getattr(self.queue, outcome)([m.id for m in some]) == len(some)
        for m in some:
            m.fired = False
            if outcome != "reload":
                self.main.remove(m)

    @precondition(lambda self: sum(m.fired for m in self.main) > 1)
    @rule(step=st.integers(2, 4))
    def reload_apart(self, step: int) -> None:
        """So that slices lie between each other's places."""
        held = [m for m in self.main if m.fired]
        for some in (held[first::step] for first in range(min(step, len(held)))):
            assert self.queue.reload([m.id for m in some]) == len(some)
            for m in some:
                m.fired = False

    @rule()
    def expire(self) -> None:
        over = [m for m in self.main if m.expires is PAST and not m.fired]
        aside = self.queue.browse(magazine="sideline").num_rows
        assert self.queue.admin.expire() == len(over)
        assert self.queue.browse(magazine="sideline").num_rows == aside
        self.main = [m for m in self.main if m not in over]

    @rule()
    def compact(self) -> None:
        self.queue.admin.compact()

    @invariant()
    def books_agree(self) -> None:
        audit(self.store)

    @invariant()
    def messages_are_read_in_order_of_their_places(self) -> None:
        seen = self.queue.browse()
        for shard in range(2):
            there = seen.filter(pc.field("_shard") == shard)["_message_id"].to_pylist()
            assert there == [m.id for m in self.main if m.shard == shard]

    def teardown(self) -> None:
        self.store.close()
        self._folder.cleanup()

    def _known(self, id: int) -> Message:
        return next(m for m in self.main if m.id == id)

    def _heads(self) -> list[Message]:
        """The fireable messages: with groups, the oldest of each group without one in flight."""
        waiting = [m for m in self.main if m.wanted and not m.fired]
        if self.group is None:
            return waiting
        busy = {m.who for m in self.main if m.fired}
        found: dict[str, Message] = {}
        for m in waiting:
            if m.who not in busy:
                found.setdefault(m.who, m)
        return list(found.values())

    def _key(self, order: str | None, m: Message) -> tuple[Any, ...]:
        own = () if self.priority is None else (m.priority is None, -(m.priority or 0))
        return (*ORDERS[order](m), *own)

    def _is_older(self, one: Message, other: Message) -> bool:
        return self.main.index(one) < self.main.index(other)


TestEligibility = Eligibility.TestCase
TestEligibility.settings = settings(
    max_examples=settings.default.max_examples // 2, stateful_step_count=15
)
