"""A user's own check as the policy of a queue: named by its import path, for every load."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from queue_core import BadOption, Decision, Queue, Store
from tests import own_checks
from tests.books import audit
from tests.factories import make_filled, make_queue, orders

ADD_UP = "tests.own_checks:add_up"


def amounts(queue: Queue) -> list[tuple[str, float]]:
    rows = queue.browse().select(["customer", "amount"]).to_pylist()
    return [(row["customer"], row["amount"]) for row in rows]


def load(queue: Queue, *rows: tuple[str, float], **how: object) -> pa.Array:
    orders = [{"number": 0, "customer": who, "amount": amount} for who, amount in rows]
    return queue.load(orders, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [own_checks.add_up, ADD_UP, "tests.own_checks:ADD_UP"])
@pytest.mark.parametrize("layout", [{"shards": 1}, {"shards": 2, "key": "customer"}])
def test_every_load_goes_through_the_check_of_the_queue(
    store: Store, policy: object, layout: dict
) -> None:
    make_queue(store, policy=policy, **layout)
    # As another process opens it.
    queue = store.queue("orders")
    assert queue.info.settings.policy is not None
    first = load(queue, ("ada", 1), ("bob", 2), ("ada", 4))
    assert first.null_count == 1
    load(queue, ("ada", 8), ("cy", 16), ("cy", 32))
    assert sorted(amounts(queue)) == [("ada", 13), ("bob", 2), ("cy", 48)]
    # The message that took values over keeps its id.
    assert first[0].as_py() in queue.browse().column("_message_id").to_pylist()

    fired = queue.fire(1, selector="customer = 'ada'")
    load(queue, ("ada", 64))
    assert sorted(amounts(queue)) == [("ada", 13), ("ada", 64), ("bob", 2), ("cy", 48)]
    queue.delete(fired)
    audit(store)


def test_messages_are_compared_without_a_key_in_one_shard(store: Store) -> None:
    queue = make_queue(store, shards=1, policy="latest")
    load(queue, ("ada", 1), ("bob", 2))
    load(queue, ("cy", 3))
    assert amounts(queue) == [("cy", 3)]

    queue.admin.change_settings(policy="drop_duplicates(customer)")
    load(queue, ("cy", 4), ("ada", 5), ("ada", 6))
    assert amounts(queue) == [("cy", 3), ("ada", 5)]

    queue.admin.change_settings(policy="tests.own_checks:BY_WORDS")
    load(queue, ("cy", 7))
    assert amounts(queue) == [("ada", 5), ("cy", 7)]
    with pytest.raises(BadOption, match="give the queue a key, or shards=1"):
        make_queue(store, "wide", shards=2, policy=ADD_UP)
    audit(store)


def test_a_message_is_deleted_between_others_that_take_values_over(store: Store) -> None:
    queue = make_queue(store, key="customer")
    load(queue, ("ada", 1), ("bob", 2), ("cy", 3))

    def add_or_cancel(new: dict, queued: dict) -> object:
        if new["amount"] == 0:
            return Decision.IGNORE_AND_DELETE
        return Decision.IGNORE, {"amount": queued["amount"] + new["amount"]}

    load(queue, ("ada", 10), ("bob", 0), ("cy", 30), policy=add_or_cancel)
    assert amounts(queue) == [("ada", 11), ("cy", 33)]
    audit(store)


def test_a_message_in_flight_cannot_take_values_over(store: Store) -> None:
    queue = make_queue(store, shards=1)
    load(queue, ("ada", 1))
    queue.fire(1)

    def check(new: dict, queued: dict) -> object:
        return Decision.IGNORE, {"amount": 5.0}

    with pytest.raises(BadOption, match="message in flight; look at '_retrieved' first"):
        load(queue, ("ada", 2), policy=check)
    assert amounts(queue) == [("ada", 1)]


def test_a_policy_that_cannot_be_stored_creates_no_queue(store: Store) -> None:
    other = make_queue(store, "other", shards=1)
    for policy, told in (
        ("no_such_module:check", "cannot be imported here"),
        (own_checks.LATEST, "cannot be stored: give its text"),
        ("later", "did you mean 'latest'"),
    ):
        with pytest.raises(BadOption, match=told):
            make_queue(store, shards=1, policy=policy)
        with pytest.raises(BadOption, match=told):
            other.admin.change_settings(policy=policy)
    assert store.queues() == ["other"]
    assert other.admin.change_settings(policy=own_checks.add_up).policy == ADD_UP


def test_a_process_without_the_module_loads_nothing(store: Store, tmp_path, monkeypatch) -> None:
    tmp_path.joinpath("shop_checks.py").write_text("def check(new, queued):\n    return 'ignore'\n")
    monkeypatch.syspath_prepend(tmp_path)
    queue = make_queue(store, shards=1, policy="shop_checks:check")
    load(queue, ("ada", 1))
    assert load(queue, ("ada", 2)).null_count == 1

    monkeypatch.undo()
    del sys.modules["shop_checks"]
    with pytest.raises(BadOption, match="policy 'shop_checks:check' cannot be imported here"):
        load(queue, ("ada", 3))
    # An operator's machine can still change other settings, and consumers can fire.
    queue.admin.change_settings(concurrency=2)
    assert queue.admin.scale(1) == 3
    assert amounts(queue) == [("ada", 1)]
    assert len(queue.fire(1)) == 1


def test_an_error_of_a_check_is_named(store):
    queue = make_filled(store, 1, key="customer")

    def broken(new, queued):
        raise KeyError("zzz")

    with pytest.raises(BadOption, match="policy: the check raised KeyError: 'zzz'"):
        queue.load(orders(1), policy=broken)
    with pytest.raises(BadOption, match="the check returned nothing; where two messages are unrel"):
        queue.load(orders(1), policy=lambda new, queued: None)
    with pytest.raises(BadOption, match="'shop:' is not an import path: write module:name"):
        queue.load(orders(1), policy="shop:")
    assert queue.peek(9).num_rows == 1
