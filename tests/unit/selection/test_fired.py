"""Fired: when to fire again after messages were refused, and what fits a limit of bytes."""

from math import inf

import numpy as np
import pytest

from queue_core.selection.fired import (
    IN_FLIGHT_SECONDS,
    LOCKED_SECONDS,
    Fired,
    Refusal,
    fitting,
)


@pytest.mark.parametrize(
    ("waits", "seconds", "by_time"),
    [
        ([5.0, 3.0], 3.0, True),
        ([0.2, inf], 0.2, True),
        ([30.0, inf], IN_FLIGHT_SECONDS, True),
        ([inf], IN_FLIGHT_SECONDS, False),
    ],
)
def test_a_refusal_ends_with_the_first_of_its_parts(waits, seconds, by_time):
    refusals = [Refusal.by_limits(waits) for _ in range(100)]
    assert all(seconds <= each.seconds <= 1.25 * seconds for each in refusals)
    assert {each.by_time for each in refusals} == {by_time}
    # Those who wait do not all come at one moment.
    assert len({each.seconds for each in refusals}) > 1


def test_a_firing_says_when_the_first_of_what_was_refused_may_come():
    limited, locked = Refusal(0.1, by_time=False), Refusal.by_lock()

    assert (Fired().opens_in, Fired().by_time) == (None, False)
    assert Fired(refused=limited).opens_in == 0.1
    assert not Fired(refused=limited).by_time
    both = Fired(refused=limited, locked=locked)
    assert (both.opens_in, both.by_time) == (0.1, True)
    assert Fired(refused=Refusal(9.0, by_time=True), locked=locked).opens_in == locked.seconds
    assert LOCKED_SECONDS <= locked.seconds <= 1.25 * LOCKED_SECONDS


@pytest.mark.parametrize(
    ("most", "count", "is_cut"), [(35, 3, True), (60, 4, False), (5, 1, True), (99, 4, False)]
)
def test_one_message_fits_any_limit_of_bytes(most, count, is_cut):
    ids, sizes = np.arange(4), np.array([10.0, 10.0, 15.0, 25.0])
    first, cut = fitting(ids, sizes, most)
    assert (first.tolist(), cut) == (list(range(count)), is_cut)
    assert fitting(ids[:0], sizes[:0], most)[1] is False
