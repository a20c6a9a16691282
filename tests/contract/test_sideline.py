"""Sideline: what has failed is set aside, with its reason and one attempt more."""

import datetime as dt

import pyarrow as pa
import pytest

from queue_core.errors import BadOutcome
from queue_core.values.failure_kinds import REASON_LENGTH
from queue_core.values.outcomes import Settlement
from tests.dump import dump
from tests.factories import make_queue, numbers_of, orders


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
    queue.load(orders(1))
    seen = []

    for _ in range(3):
        firing = queue.fire("all")
        seen += firing.messages.column("_attempt").to_pylist()
        queue.sideline(firing)
        queue.shovel()

    assert seen == [0, 1, 2]
    assert queue.peek().column("_attempt").to_pylist() == [3]


def test_messages_of_one_slice_may_have_failed_unequally_often(store):
    queue = make_queue(store)
    queue.load(orders(6))
    firing = queue.fire("all")
    queue.sideline(firing.ids.take([1, 3, 5]))
    queue.delete(firing)
    queue.sideline(queue.fire("all", magazine="sideline").ids.take([1]))

    messages = queue.fire("all", magazine="sideline").messages

    assert numbers_of(messages) == [3]
    queue.reload(messages.column("_message_id"))
    still = queue.browse(magazine="sideline")
    attempts = dict(zip(numbers_of(still), still.column("_attempt").to_pylist(), strict=True))
    assert attempts == {1: 1, 3: 2, 5: 1}


def test_why_a_message_failed_is_told_with_when_and_by_whom(store):
    queue = make_queue(store)
    queue.load(orders(2))
    firing = queue.fire("all", consumer=store.consumer("till-1"))
    before = store.catalog.now()

    queue.sideline(firing, reason="declined")

    rows = queue.failures().to_pylist()
    assert [(row["queue"], row["reason"], row["consumer"]) for row in rows] == [
        ("orders", "declined", "till-1")
    ] * 2
    assert [row["message_id"] for row in rows] == firing.ids.to_pylist()
    for row in rows:
        assert (
            dt.timedelta()
            <= row["failed_at"] - dt.datetime.fromtimestamp(before / 1e6, dt.UTC)
            < dt.timedelta(seconds=60)
        )


def test_a_message_that_fails_twice_is_told_of_twice(store):
    queue = make_queue(store)
    (id,) = queue.load(orders(1)).to_pylist()
    queue.sideline(queue.fire("all"), reason="first")
    queue.sideline(queue.fire("all", magazine="sideline"), reason="second")

    assert reasons(queue) == [(id, "first"), (id, "second")]


def test_what_is_sidelined_without_a_reason_is_rejected(store):
    queue = make_queue(store)
    ids = queue.load(orders(3)).to_pylist()
    queue.fire("all")

    queue.sideline(ids[:1])
    queue.sideline(ids[1:2], kind="stale")
    queue.sideline(ids[2:], reason="declined", kind="stale")

    assert failures(queue, "kind", "reason") == [
        ("rejected", None),
        ("stale", None),
        ("stale", "declined"),
    ]


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


def test_a_reason_is_told_only_for_what_was_really_moved(store):
    queue = make_queue(store)
    ids = queue.load(orders(4))
    queue.fire(2)

    assert queue.sideline(ids, reason="x") == 2
    assert reasons(queue) == [(id, "x") for id in ids[:2].to_pylist()]


@pytest.mark.parametrize("reason", ["", "größe 'quoted' \x00 \n", "x" * (REASON_LENGTH + 5)])
def test_any_text_can_be_a_reason(store, reason):
    queue = make_queue(store)
    (id,) = queue.load(orders(1)).to_pylist()

    queue.sideline(queue.fire("all"), reason=reason)

    assert reasons(queue) == [(id, reason[:REASON_LENGTH])]


def test_sidelined_messages_are_in_the_order_in_which_they_came(store):
    queue = make_queue(store)
    ids = queue.load(orders(6))
    queue.fire("all")

    for row in (4, 0, 2):
        queue.sideline(ids[row : row + 1])
    queue.sideline(ids.take(pa.array([5, 1])))

    assert numbers_of(queue.fire("all", magazine="sideline").messages) == [4, 0, 2, 1, 5]


def test_a_sidelined_message_stays_in_its_shard(store):
    queue = make_queue(store, shards=4, key="customer")
    queue.load(orders(40))
    firing = queue.fire("all")
    shards = dict(
        zip(firing.ids.to_pylist(), firing.messages.column("_shard").to_pylist(), strict=True)
    )

    queue.sideline(firing)

    there = sidelined(queue)
    assert shards == dict(
        zip(
            there.column("_message_id").to_pylist(), there.column("_shard").to_pylist(), strict=True
        )
    )


def test_messages_that_interleave_are_set_aside_in_their_order(store):
    queue = make_queue(store)
    ids = queue.load(orders(9))
    queue.fire("all")
    queue.reload(ids.take(pa.array([1, 4, 7])))
    queue.fire("all")

    queue.sideline(ids.take(pa.array([0, 1, 2, 4, 8])))
    queue.sideline(ids)

    assert numbers_of(queue.fire("all", magazine="sideline").messages) == [
        0,
        1,
        2,
        4,
        8,
        3,
        5,
        6,
        7,
    ]


def test_the_sideline_is_fired_and_deleted_like_main(store):
    queue = make_queue(store)
    queue.load(orders(3))
    queue.sideline(queue.fire("all"))

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

    settled = queue.settle(
        Settlement.of(
            pa.table({"_message_id": ids, "outcome": outcomes, "reason": [f"r{id}" for id in ids]})
        )
    )

    assert settled == 6
    assert numbers_of(sidelined(queue)) == [1, 4]
    assert numbers_of(queue.browse()) == [2, 5]
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
    queue = make_queue(store)
    queue.load(orders(1))
    firing = queue.fire("all")
    before = dump(store)

    with pytest.raises(BadOutcome, match=told):
        queue.sideline(firing, **why)
    assert dump(store) == before
