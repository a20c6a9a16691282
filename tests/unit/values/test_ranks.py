import numpy as np
import pytest

from queue_core.values.ranks import GROUPS, STRETCHES, TICKS, Ranking, groups, packed, stretches


def spans(*counts):
    """The begins and ends of the spans of flows of a weight of 1 with so many rows, in order."""
    nth = np.concatenate([np.arange(count) for count in counts]) * TICKS
    high = np.sort(nth + TICKS)
    return high - TICKS, high


def ranks_of(found, rows):
    ranks = np.empty(rows, dtype=np.int64)
    for start, stop, tag, pace in found:
        ranks[start:stop] = tag + pace * np.arange(stop - start)
    return ranks


def test_turns_of_equal_lanes_are_one_stretch():
    assert len(stretches(*spans(*[10] * 100), 0)) == 1


def test_a_long_lane_has_a_stretch_of_its_own():
    low, high = spans(100_000, *[10] * 99)

    found = stretches(low, high, 7)

    assert found[0].start == 7
    assert len(found) == 2
    assert abs(found[1].start - 7 - 1000) < 200
    assert found[0].pace == pytest.approx(TICKS / 100, rel=0.01)
    assert found[1].pace == pytest.approx(TICKS, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_no_rank_reaches_the_end_of_its_span_and_ranks_rise(seed):
    random = np.random.default_rng(seed)
    low, high = spans(*random.geometric(0.01, 200))

    found = stretches(low, high, 0)

    ranks = ranks_of(found, len(low))
    assert len(found) <= STRETCHES
    assert (ranks < high).all()
    assert (ranks >= 0).all()
    assert (np.diff(ranks) >= 0).all()


def test_lanes_with_nothing_waiting_start_now_and_others_after_their_last_message():
    of, begins = groups(np.array([0, 50, 100, 150, 10_000]), 100)

    assert begins[of].tolist() == [100, 100, 100, 150, 10_000]


def test_lanes_with_about_as_much_waiting_are_together():
    starts = np.concatenate([[0], 2 ** np.arange(40)])

    of, begins = groups(starts, 0)

    assert len(begins) <= GROUPS
    assert begins[of][0] == 0
    assert (begins[of] >= starts).all()
    assert of[0] != of[1]


@pytest.mark.parametrize("flows", [1, 3, 1 << 17])
def test_the_lanes_of_rows_are_packed(flows):
    codes = np.arange(flows) % flows
    empty = np.empty(flows, dtype=np.int64)

    ranking = Ranking(5, 5 + flows, (), empty, empty, packed(codes, flows))

    assert ranking.flow_of_rows().tolist() == codes.tolist()
