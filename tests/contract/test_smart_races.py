"""Smart loads, and other changes between the decision and the transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from queue_core import Queue, Store
from queue_core.errors import QueueDeactivated, QueueFull
from queue_core.waiting.smart import load
from queue_core.waiting.smart.load import TRIES
from tests.factories import make_queue
from tests.waiting import Caller, waits

pytestmark = pytest.mark.each_catalog

SCHEMA = pa.schema([("key", pa.string()), ("kind", pa.string()), ("n", pa.int64())])

Act = Callable[[], object]


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Act, times: int = 1) -> list[int]:
    """Act after each of the first decisions; return the number of decisions, which grows."""
    decide, decisions = load.decide, [0]

    def then_act(*args: Any) -> Any:
        plan = decide(*args)
        decisions[0] += 1
        if decisions[0] <= times:
            monkeypatch.setattr(load, "decide", decide)
            act()
            monkeypatch.setattr(load, "decide", then_act)
        return plan

    monkeypatch.setattr(load, "decide", then_act)
    return decisions


def queue_of(store: Store, policy: str | None, **settings: Any) -> Queue:
    return make_queue(store, schema=SCHEMA, key="key", policy=policy, **settings)


def put(queue: Queue, key: str, kind: str = "on", n: int = 1) -> list[int | None]:
    return queue.load([{"key": key, "kind": kind, "n": n}]).to_pylist()


def there(queue: Queue) -> list[tuple[str, str, int]]:
    rows = queue.browse().select(SCHEMA.names).to_pylist()
    return [(row["key"], row["kind"], row["n"]) for row in rows]


@pytest.mark.parametrize("before", [(), (1,)])
def test_a_message_loaded_meanwhile_is_met(store, monkeypatch, before):
    """Even if none of its key was queued, on which the decision depends."""
    queue = queue_of(store, "latest")
    for number in before:
        put(queue, "a", n=number)
    decisions = meanwhile(monkeypatch, lambda: put(queue, "a", n=2))
    put(queue, "a", n=3)
    assert there(queue) == [("a", "on", 3)]
    assert decisions == [2]


def test_a_message_fired_meanwhile_takes_no_values_over(store, monkeypatch):
    queue = queue_of(store, "merge(sum(n))")
    put(queue, "a", n=1)
    meanwhile(monkeypatch, lambda: queue.fire("all"))
    (name,) = put(queue, "a", n=2)
    assert name is not None
    assert there(queue) == [("a", "on", 1), ("a", "on", 2)]


def test_a_neighbour_can_be_fired_meanwhile(store, monkeypatch):
    queue = queue_of(store, "merge(sum(n))")
    ids = queue.load([{"key": key, "n": 1} for key in "abc"]).to_pylist()
    fired = []
    meanwhile(monkeypatch, lambda: fired.append(queue.fire("all", selector="key = 'b'")))
    assert queue.load([{"key": key, "n": 2} for key in "ac"]).null_count == 2
    assert queue.browse().column("n").to_pylist() == [3, 1, 3]
    assert queue.browse().column("_message_id").to_pylist() == ids
    assert queue.sideline(fired[0]) == 1
    assert queue.fire("all").ids.to_pylist() == [ids[0], ids[2]]


def test_messages_compacted_meanwhile_are_found_again(store, monkeypatch):
    queue = queue_of(store, "merge(sum(n))")
    ids = [put(queue, f"key-{number}")[0] for number in range(70)]
    decisions = meanwhile(monkeypatch, queue.admin.compact)
    put(queue, "key-3", n=5)
    assert decisions == [2]
    assert queue.browse().column("_message_id").to_pylist() == ids
    assert queue.browse().column("n").to_pylist() == [1, 1, 1, 6, *([1] * 66)]


def test_a_message_reloaded_meanwhile_counts_as_a_later_one(store, monkeypatch):
    queue = queue_of(store, "latest")
    put(queue, "a", n=1)
    firing = queue.fire("all")
    meanwhile(monkeypatch, lambda: queue.reload(firing))
    put(queue, "a", n=2)
    assert there(queue) == [("a", "on", 1), ("a", "on", 2)]


def test_a_message_settled_meanwhile_is_not_confirmed(store, monkeypatch):
    queue = queue_of(store, "confirm(kind = 'ack')")
    put(queue, "a")
    firing = queue.get_and_keep("all")
    meanwhile(monkeypatch, lambda: queue.delete(firing))
    (name,) = put(queue, "a", "ack")
    assert name is not None
    assert there(queue) == [("a", "ack", 1)]


def test_a_load_with_many_stale_snapshots_locks_the_shards_at_last(store, monkeypatch):
    queue = queue_of(store, "merge(sum(n))")
    put(queue, "a", n=1)
    decisions = meanwhile(monkeypatch, lambda: put(queue, "a", n=10), times=TRIES)
    put(queue, "a", n=100)
    assert decisions == [TRIES + 1]
    assert there(queue) == [("a", "on", 101 + 10 * TRIES)]


def test_a_key_that_is_added_meanwhile_is_known(store, monkeypatch):
    queue = queue_of(store, None, dedup=("n",))
    decisions = meanwhile(monkeypatch, lambda: put(queue, "a", n=1))
    assert put(queue, "b", n=1) == [None]
    assert decisions == [2]
    assert there(queue) == [("a", "on", 1)]


def test_a_deactivated_queue_merges_nothing(store):
    queue = queue_of(store, "merge(sum(n))")
    put(queue, "a")
    store.queue(queue.name).admin.deactivate()
    with pytest.raises(QueueDeactivated):
        put(queue, "a")
    assert there(queue) == [("a", "on", 1)]


def test_a_full_queue_has_room_for_a_message_that_replaces_another(store):
    queue = queue_of(store, "latest", max_size=2, overflow="fail")
    put(queue, "a")
    put(queue, "b")
    put(queue, "a", n=2)
    with pytest.raises(QueueFull):
        put(queue, "c")
    assert there(queue) == [("b", "on", 1), ("a", "on", 2)]


def test_a_load_that_makes_its_own_room_goes_before_those_that_wait_for_room(store):
    """Nobody else would make room: what is kept goes when it is confirmed."""
    queue = queue_of(store, "confirm(kind = 'ack')", max_size=2)
    for number in (1, 2):
        put(queue, "a", n=number)
    queue.get_and_keep(2)
    other = Caller(lambda: put(queue, "a", n=4))
    waits(store, 1)

    rows = [{"key": "a", "kind": kind, "n": 3} for kind in ("ack", "on")]
    ids = queue.load(rows, timeout=5)

    assert ids.is_null().to_pylist() == [True, False]
    put(queue, "a", "ack")
    assert len(other.done()) == 1
    assert there(queue) == [("a", "on", 3), ("a", "on", 4)]
