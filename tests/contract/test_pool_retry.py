"""Handlers in a pool get their messages again: after failures, by the policy, and as they wish."""

import time
from itertools import pairwise

import pyarrow as pa
import pytest

from queue_core import ConsumerPool, Later, Retry, batch_handler, constant
from queue_core.errors import BadOutcome
from tests.contract.pools import Recorder
from tests.factories import make_filled, make_queue, orders, with_sidelined
from tests.waiting import until


def sideline(store):
    return {row["message_id"]: row for row in store.view("sideline").to_pylist()}


def test_a_pool_tries_its_messages_again_until_they_are_done_or_dead(store):
    queue = make_filled(store, 4, retry=None)
    tried = []

    def handle(message):
        tried.append((message["number"], message["_attempt"], time.monotonic()))
        match message["number"]:
            case 1 if message["_attempt"] < 2:
                raise ConnectionResetError
            case 2:
                raise ConnectionRefusedError
            case 3:
                raise KeyError("who")
        return True

    retry = Retry(attempts=3, backoff=constant(0.4), on=[ConnectionError, "timeout"])
    with ConsumerPool(store, "orders", handle, concurrency=1, retry=retry):
        until(lambda: len(tried) == 8)
        until(lambda: queue.browse().num_rows == 0)

    attempts = [sorted(a for n, a, _ in tried if n == number) for number in range(4)]
    assert attempts == [[0], [0, 1, 2], [0, 1, 2], [0]]
    left = sideline(store)
    assert {
        (row["attempts"], row["dead"], row["due_at"], row["kind"]) for row in left.values()
    } == {
        (3, True, None, "exception"),
        (1, True, None, "exception"),
    }
    times = [at for number, _, at in tried if number == 1]
    # A second more, and what a busy machine takes.
    assert all(0.4 <= later - earlier < 10 for earlier, later in pairwise(times))
    assert store.admin.fsck().to_pylist() == []


def test_a_handler_puts_its_message_off(store):
    queue = make_filled(store, 2)
    seen = []

    def handle(message):
        seen.append((message["number"], message["_attempt"]))
        if message["number"] == 1 and seen.count((1, 0)) == 1:
            raise Later(0.5, "quota")
        return True

    with ConsumerPool(store, "orders", handle, concurrency=1) as pool:
        until(lambda: len(seen) == 3)
        until(lambda: pool.counts.get("deleted") == 2)

    assert sorted(seen) == [(0, 0), (1, 0), (1, 0)]
    assert pool.counts["reloaded"] == 1
    assert queue.failures().num_rows == 0


def test_a_message_that_waits_is_seen_with_its_time_and_its_error(store):
    queue = make_queue(store, retry=Retry(attempts=2, backoff=constant(600)))
    ids = queue.load(orders(3)).to_pylist()

    def fails(message):
        if message["number"] == 2:
            raise Later(60)
        raise ValueError(f"no {message['number']}")

    with ConsumerPool(store, "orders", fails, concurrency=1) as pool:
        pool.drain()

    seen = sideline(store)
    assert [(seen[each]["attempts"], seen[each]["reason"]) for each in ids] == [
        (1, "ValueError: no 0"),
        (1, "ValueError: no 1"),
        (0, None),
    ]
    waits = [(seen[each]["due_at"] - seen[each]["sidelined_at"]).total_seconds() for each in ids]
    assert [round(wait) for wait in waits] == [600, 600, 60]
    assert [seen[each]["deliveries"] for each in ids] == [1, 1, 0]
    (row,) = store.view("queues").to_pylist()
    assert (row["sidelined"], row["retrying"], row["dead"]) == (3, 3, 0)


def test_the_refused_handlers_message_is_dead(store):
    """Its work was done: the default policy does not repeat it."""
    make_filled(store, 3)
    pool = ConsumerPool(store, "orders", Recorder(lambda _: None), concurrency=1)
    with pytest.raises(BadOutcome, match="returned None"), pool:
        until(lambda: pool.error is not None)

    (row,) = sideline(store).values()
    assert (row["kind"], row["dead"]) == ("undecided", True)


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_message_of_the_sideline_cannot_be_put_off(store, in_batches):
    """It would come back at once, and its handler would run without end."""
    queue = with_sidelined(store, 2)
    before = sideline(store)
    calls = []

    def handle(message):
        calls.append(message)
        raise Later(60)

    @batch_handler
    def handle_all(batch):
        calls.append(batch)
        count = batch.num_rows
        return pa.table({"outcome": ["reload"] * count, "delay": [60.0] * count})

    handler = handle_all if in_batches else handle
    pool = ConsumerPool(store, "orders_SIDELINE", handler, concurrency=1)
    with pytest.raises(BadOutcome, match="puts messages of the sideline off"), pool:
        until(lambda: pool.error is not None)

    assert len(calls) == 1
    after = sideline(store)
    assert [row["due_at"] for row in after.values()] == [row["due_at"] for row in before.values()]
    assert queue.fire("all", magazine="sideline").messages.num_rows == 2


def test_nor_can_one_of_a_sideline_beside_the_main_of_another_queue(store):
    """Otherwise, the pool would fire it at once again, for ever."""
    make_queue(store)
    other = with_sidelined(store, 2, "other", retry=None)
    calls = []

    def puts_off(message):
        calls.append(message["number"])
        raise Later(60)

    pool = ConsumerPool(store, ["orders", "other_SIDELINE"], puts_off, tasks=[], concurrency=1)
    with pytest.raises(BadOutcome, match="puts messages of the sideline off"), pool:
        until(lambda: pool.error is not None)

    assert len(calls) == 1
    assert other.fire("all", magazine="sideline").messages.num_rows == 2
