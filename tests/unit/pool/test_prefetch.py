"""Prefetch: how much is fired ahead, and what becomes of it."""

import pyarrow as pa

from queue_core.pool import prefetch
from queue_core.pool.held import HeldBatch
from queue_core.pool.prefetch import Prefetch
from queue_core.pool.timings import LINGER_SECONDS


def batch(*numbers):
    ids = pa.array(numbers, pa.int64())
    return HeldBatch(pa.record_batch({"_message_id": ids}), 100 * len(numbers))


def found(batch):
    return batch.messages["_message_id"].to_pylist(), batch.bytes


def test_more_is_fired_while_it_is_used_up_within_the_linger(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(prefetch.time, "monotonic", lambda: now[0])
    prefetched = Prefetch(max_factor=8)
    now[0] = 100.0
    assert prefetched.amount(100) == 100
    amounts = []
    for _ in range(5):
        prefetched.put()
        now[0] += LINGER_SECONDS / 2
        amounts.append(prefetched.amount(100))
    for _ in range(4):
        prefetched.put()
        now[0] += LINGER_SECONDS * 2
        amounts.append(prefetched.amount(100))

    assert amounts == [200, 400, 800, 800, 800, 400, 200, 100, 100]


def test_firings_that_find_nothing_are_no_sign_of_quick_handlers(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(prefetch.time, "monotonic", lambda: now[0])
    prefetched = Prefetch()
    assert [prefetched.amount(1) for _ in range(3)] == [1, 1, 1]
    prefetched.put()

    assert [prefetched.amount(1) for _ in range(3)] == [2, 2, 2]
    now[0] += LINGER_SECONDS * 2
    assert prefetched.amount(1) == 1


def test_what_was_fired_ahead_is_handed_out_in_order_and_the_rest_given_back():
    prefetched = Prefetch()
    assert prefetched.next(2) is None
    prefetched.put(batch(1, 2, 3), batch(4))
    assert found(prefetched.next(2)) == ([1, 2], 200)
    assert found(prefetched.next(2)) == ([3], 100)
    assert [found(left) for left in prefetched.clear()] == [([4], 100)]
    assert prefetched.next(2) is None


def test_nothing_is_fired_ahead_where_it_may_not_be():
    prefetched = Prefetch(1)
    prefetched.put()
    assert prefetched.amount(100) == 100
