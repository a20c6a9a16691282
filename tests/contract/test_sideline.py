"""Sideline: what has failed is set aside, with its reason and one attempt more."""

import pyarrow as pa
import pytest

from queue_core.errors import BadOutcome
from queue_core.values.failure_kinds import REASON_LENGTH
from queue_core.values.outcomes import Settlement
from tests.dump import dump
from tests.factories import make_filled, make_queue, numbers_of, orders, with_sidelined


def sidelined(queue):
    return queue.browse(magazine="sideline")


def failures(queue, *columns):
    return [tuple(row.values()) for row in queue.failures().select(columns).to_pylist()]


def reasons(queue):
    return failures(queue, "message_id", "reason")


def test_sidelined_messages_leave_main_and_keep_their_ids(store):
    queue = make_queue(store)
    ids = queue.load(orders(10))
    queue.fire("all")
    assert queue.sideline(ids[3:6], reason="declined") == 3
    assert sidelined(queue).column("_message_id").to_pylist() == ids[3:6].to_pylist()
    assert numbers_of(sidelined(queue)) == [3, 4, 5]
    assert numbers_of(queue.browse()) == [0, 1, 2, 6, 7, 8, 9]


def test_a_sidelined_message_has_one_attempt_more_each_time(store):
    queue = make_queue(store)
    (id,) = queue.load(orders(1)).to_pylist()
    seen = []

    for reason in ("first", "second", None):
        firing = queue.fire("all")
        seen += firing.messages.column("_attempt").to_pylist()
        queue.sideline(firing, reason=reason)
        queue.shovel()

    assert seen == [0, 1, 2]
    assert queue.peek().column("_attempt").to_pylist() == [3]
    assert reasons(queue) == [(id, "first"), (id, "second"), (id, None)]


def test_why_a_message_failed_is_told_with_when_and_by_whom(store):
    queue = make_filled(store, 2)
    firing = queue.fire("all", consumer=store.consumer("till-1"))
    before = store.catalog.now()

    queue.sideline(firing, reason="declined")

    told = [("orders", id, "declined", "till-1") for id in firing.ids.to_pylist()]
    assert failures(queue, "queue", "message_id", "reason", "consumer") == told
    for failed_at in queue.failures().column("failed_at").cast("int64").to_pylist():
        assert before <= failed_at < before + 60_000_000


def test_what_is_sidelined_without_a_reason_is_rejected(store):
    queue = make_queue(store)
    ids = queue.load(orders(4)).to_pylist()
    queue.fire(3)

    queue.sideline(ids[:1])
    queue.sideline(ids[1:2], kind="stale")
    # The last one is not in flight: nothing is told of it.
    assert queue.sideline(ids[2:], reason="declined", kind="stale") == 1

    told = [("rejected", None), ("stale", None), ("stale", "declined")]
    assert failures(queue, "kind", "reason") == told


def test_a_failure_tells_how_often_its_message_had_failed_before(store):
    queue = make_queue(store, shards=4, key="customer")
    ids = queue.load(orders(60)).to_pylist()
    queue.fire("all")
    queue.sideline(ids[::3])
    queue.reload(ids)
    queue.shovel()
    queue.fire("all")
    before = queue.failures().num_rows

    queue.sideline(ids, reason="again")

    told = failures(queue, "message_id", "attempt")[before:]
    assert dict(told) == dict(zip(ids, [1, 0, 0] * 20, strict=True))


def test_reasons_of_many_kinds_stay_with_their_messages(store):
    queue = make_queue(store, shards=3)
    ids = queue.load(orders(50)).to_pylist()
    queue.fire("all")
    kinds = [["late", None, "stale"][n % 3] for n in range(50)]
    told = [None if n % 5 == 0 else f"reason {n % 7}" for n in range(50)]
    rows = {"_message_id": ids, "outcome": ["sideline"] * 50, "kind": kinds, "reason": told}

    queue.settle(Settlement.of(pa.table(rows).take(pa.array(range(49, -1, -1)))))

    expected = [
        (id, kind or "rejected", why) for id, kind, why in zip(ids, kinds, told, strict=True)
    ]
    assert failures(queue, "message_id", "kind", "reason") == expected


@pytest.mark.parametrize("reason", ["", "größe 'quoted' \x00 \n", "x" * (REASON_LENGTH + 5)])
def test_any_text_can_be_a_reason(store, reason):
    queue = make_queue(store)
    (id,) = queue.load(orders(1)).to_pylist()
    queue.sideline(queue.fire("all"), reason=reason)
    assert reasons(queue) == [(id, reason[:REASON_LENGTH])]


def test_messages_that_interleave_are_set_aside_in_their_order(store):
    queue = make_queue(store)
    ids = queue.load(orders(9))
    queue.fire("all")
    queue.reload(ids.take(pa.array([1, 4, 7])))
    queue.fire("all")

    queue.sideline(ids.take(pa.array([0, 1, 2, 4, 8])))
    queue.sideline(ids)

    order = numbers_of(queue.fire("all", magazine="sideline").messages)
    assert order == [0, 1, 2, 4, 8, 3, 5, 6, 7]


def test_the_sideline_is_fired_and_deleted_like_main(store):
    queue = with_sidelined(store, 3)
    firing = queue.fire(2, magazine="sideline")
    assert numbers_of(firing.messages) == [0, 1]
    assert queue.delete(firing) == 2
    assert numbers_of(sidelined(queue)) == [2]
    assert len(queue.fire("all")) == 0


def test_one_settlement_gives_each_message_its_own_outcome(store):
    queue = make_queue(store)
    ids = queue.load(orders(6)).to_pylist()
    queue.fire("all")
    outcomes = ["delete", "sideline", "reload"] * 2
    rows = {"_message_id": ids, "outcome": outcomes, "reason": [f"r{id}" for id in ids]}

    assert queue.settle(Settlement.of(pa.table(rows))) == 6
    assert numbers_of(sidelined(queue)) == [1, 4]
    assert numbers_of(queue.fire("all").messages) == [2, 5]
    assert reasons(queue) == [(ids[1], f"r{ids[1]}"), (ids[4], f"r{ids[4]}")]


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ({"reason": 5}, "reason=5: use text"),
        ({"reason": b"bytes"}, "reason=b'bytes'"),
        ({"reason": ["a"]}, "reason="),
        ({"kind": "Not one"}, "kind='Not one': use one word"),
        ({"kind": None}, "kind=None: use one word"),
    ],
)
def test_why_must_be_text_and_one_word(store, why, told):
    queue = make_filled(store, 1)
    firing = queue.fire("all")
    before = dump(store)
    with pytest.raises(BadOutcome, match=told):
        queue.sideline(firing, **why)
    assert dump(store) == before
