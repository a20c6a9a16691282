"""Buckets: the tokens of a limit per second, of which each fired message takes one.

A bucket is one time: up to this time, the tokens are spent. A token comes every `1 / per_second`
seconds, and the bucket holds those of one window. All times are microseconds.
"""

from __future__ import annotations

from math import ceil

from queue_core.values.limits import Limit

#: Whoever waits for tokens sleeps until this part of a window has brought some, so that many
#: processes do not wake up for each single token.
SHARE = 0.1


def interval(limit: Limit) -> float:
    """Return the microseconds from one token to the next."""
    assert limit.per_second is not None, "the limit has a rate"
    return 1e6 / limit.per_second


def window(limit: Limit) -> float:
    """Return the microseconds whose tokens the bucket holds; at least those of one token."""
    return max(limit.window * 1e6, interval(limit))


def tokens(limit: Limit, spent_until: int | None, now: int) -> int:
    """Return how many tokens there are; None: none was ever spent."""
    return int((now - _start(limit, spent_until, now)) / interval(limit) + 1e-6)


def spend(limit: Limit, spent_until: int | None, now: int, count: int) -> int:
    """Return the bucket after *count* tokens were spent."""
    return ceil(_start(limit, spent_until, now) + count * interval(limit))


def wait(limit: Limit, spent_until: int | None, now: int) -> int:
    """Return after how many microseconds an empty bucket has tokens that are worth a firing."""
    wanted = max(int(SHARE * window(limit) / interval(limit)), 1)
    at = _start(limit, spent_until, now) + wanted * interval(limit)
    return max(ceil(at - now), 0)


def is_full(limit: Limit, spent_until: int, now: int) -> bool:
    """Return whether a bucket is full, as if no token had been spent."""
    return spent_until <= now - window(limit)


def _start(limit: Limit, spent_until: int | None, now: int) -> float:
    """Return the time up to which tokens are spent or have run over."""
    earliest = now - window(limit)
    # A later time than now comes from a clock that was ahead.
    return earliest if spent_until is None else min(max(spent_until, earliest), now)
