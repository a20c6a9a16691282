"""Buckets: no more tokens than the rate gives, and at most those of one window at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core import limit
from queue_core.values import buckets

SECOND = 1_000_000


def test_a_new_bucket_has_the_tokens_of_one_window():
    assert buckets.tokens(limit(per_second=100), None, 5 * SECOND) == 100
    assert buckets.tokens(limit(per_second=100, window=3), None, 5 * SECOND) == 300
    assert buckets.tokens(limit(per_second=0.5), None, 5 * SECOND) == 1


def test_tokens_come_one_by_one():
    rate, now = limit(per_second=10), 9 * SECOND
    spent = buckets.spend(rate, None, now, 10)

    assert spent == now
    assert buckets.tokens(rate, spent, now + 99_999) == 0
    assert buckets.tokens(rate, spent, now + 100_000) == 1
    assert buckets.tokens(rate, spent, now + 60 * SECOND) == 10
    assert not buckets.is_full(rate, spent, now + SECOND - 1)
    assert buckets.is_full(rate, spent, now + SECOND)


def test_those_who_wait_sleep_for_a_tenth_of_a_window():
    assert buckets.wait(limit(per_second=100), 0, 0) == 100_000
    assert buckets.wait(limit(per_second=2), 0, 0) == 500_000
    assert buckets.wait(limit(per_second=0.25), 0, SECOND) == 3 * SECOND


def test_a_clock_that_was_ahead_empties_the_bucket_once():
    rate = limit(per_second=10)

    assert buckets.tokens(rate, 3600 * SECOND, SECOND) == 0
    assert buckets.wait(rate, 3600 * SECOND, SECOND) == 100_000


@pytest.mark.parametrize("rate", [0.3, 7.0, 1000 / 3])
@given(steps=st.lists(st.tuples(st.integers(0, 4 * SECOND), st.integers(1, 500)), max_size=30))
def test_no_more_tokens_than_the_rate_and_one_window(rate, steps):
    one, now, spent, fired = limit(per_second=rate), SECOND, None, 0
    began = now
    for step, wanted in steps:
        now += step
        count = min(wanted, buckets.tokens(one, spent, now))
        if count:
            spent = buckets.spend(one, spent, now, count)
            assert spent <= now + 1
        fired += count
        assert fired <= (now - began) * rate / 1e6 + max(rate, 1) + 1e-3
