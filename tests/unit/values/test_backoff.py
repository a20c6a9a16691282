"""Backoffs: waits that grow up to a limit, and their texts."""

import pytest

from queue_core import constant, exponential
from queue_core.errors import BadOption


def test_exponential_waits_grow_up_to_the_limit():
    backoff = exponential(5, factor=3, max=3600)

    assert [backoff.seconds(n) for n in range(1, 9)] == [5, 15, 45, 135, 405, 1215, 3600, 3600]


def test_no_number_of_failures_overflows():
    assert {constant(60).seconds(n) for n in (1, 2, 10**9)} == {60}
    assert exponential(1, factor=1e6, max=100).seconds(2_000_000_000) == 100
    assert exponential(0, factor=1e6).seconds(2_000_000_000) == 0
    # A swept message waits as after one failure.
    assert exponential(5).seconds(0) == 5


@pytest.mark.parametrize(
    ("backoff", "text"),
    [
        (exponential(1), "exponential(1, factor=2, max=3600)"),
        (exponential(0.5, 1.5, 60, 0.2), "exponential(0.5, factor=1.5, max=60, jitter=0.2)"),
        (constant(60), "constant(60)"),
        (constant(0.25, jitter=1), "constant(0.25, jitter=1)"),
    ],
)
def test_a_backoff_shows_how_it_is_made(backoff, text):
    assert repr(backoff) == text


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: exponential(-1), "first=-1"),
        (lambda: exponential("soon"), "first='soon'"),
        (lambda: exponential(True), "first=True"),
        (lambda: exponential(1, factor=0.5), "factor=0.5"),
        (lambda: exponential(1, max=float("inf")), "max=inf"),
        (lambda: constant(float("nan")), "first=nan"),
        (lambda: constant(1, jitter=2), "jitter=2"),
    ],
)
def test_numbers_out_of_range_are_refused(make, told):
    with pytest.raises(BadOption, match=told):
        make()
