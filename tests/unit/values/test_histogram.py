"""Histograms: quantiles within a bucket, and counts that add up."""

from itertools import pairwise

import numpy as np
import pytest

from queue_core.values.histogram import (
    BOUNDS,
    SHOWN,
    Measured,
    counted,
    nothing,
    packed,
    quantile,
    shown,
    unpacked,
)


def test_bounds_grow_by_two_or_two_and_a_half():
    ratios = np.array(BOUNDS[1:]) / BOUNDS[:-1]
    assert set(ratios.round(3)) == {2.0, 2.5}
    assert set(SHOWN) < set(BOUNDS)
    assert (SHOWN[0], SHOWN[-1], len(SHOWN)) == (0.005, 10_000, 14)


def bucket_of(seconds):
    """Return the bounds of the bucket of a time."""
    edges = (0.0, *BOUNDS, float("inf"))
    return next((low, high) for low, high in pairwise(edges) if seconds <= high)


@pytest.mark.parametrize("part", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("seed", range(5))
def test_a_quantile_is_within_the_bucket_of_the_true_one(part, seed):
    rng = np.random.default_rng(seed)
    seconds = rng.lognormal(rng.uniform(-6, 6), 2.0, 999)
    true = np.quantile(seconds, part, method="inverted_cdf")
    low, high = bucket_of(float(true))
    found = quantile(counted(seconds), part)
    assert min(low, BOUNDS[-1]) <= found <= high


def test_without_messages_there_is_no_quantile():
    assert quantile(nothing(), 0.5) is None
    assert packed(nothing()) is None
    assert not unpacked(None).any()


def test_a_bound_belongs_to_its_bucket_and_more_is_the_last():
    assert counted([0.0, 0.001, 0.0011]).tolist()[:2] == [2, 1]
    assert counted([1e9])[-1] == 1
    assert quantile(counted([1e9]), 0.5) == BOUNDS[-1]
    assert bucket_of(1e9) == (BOUNDS[-1], float("inf"))


def test_shown_counts_are_those_up_to_a_bound():
    seconds = np.array([0.001, 0.004, 0.02, 3.0, 1e5])
    counts = counted(seconds, [1, 2, 3, 4, 5])
    expected = [int(np.array([1, 2, 3, 4, 5])[seconds <= bound].sum()) for bound in SHOWN]
    assert shown(counts) == [*expected, 15]


def test_measures_add_up_and_survive_bytes():
    one = Measured.of([0.5, float("nan"), 2.0], [3, 100, 1])
    assert (one.counts.sum(), one.seconds) == (4, 3.5)
    both = one.plus(Measured.of([0.5], [1]))
    assert (both.counts.sum(), both.seconds) == (5, 4.0)
    assert (unpacked(packed(both.counts)) == both.counts).all()
