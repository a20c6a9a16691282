"""Windows of calls, against a plain list of them."""

import math
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from queue_core.handling.breakers.windows import Windows


@given(
    st.floats(0.01, 1),
    st.integers(1, 12),
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=60),
)
def test_a_key_trips_when_the_share_of_its_last_calls_failed(share, of, calls):
    windows, known = Windows(share, of), defaultdict(list)

    for key, failed in calls:
        known[key].append(failed)
        expected = sum(known[key][-of:]) >= max(math.ceil(share * of), 1)
        assert windows.note(key, failed) is expected


def test_successes_take_no_memory():
    windows = Windows(0.5, 4)
    for number in range(1000):
        windows.note(str(number), False)
    windows.note("a", True)
    for _ in range(4):
        windows.note("a", False)

    assert len(windows) == 0


def test_many_calls_count_by_their_share():
    assert not Windows(0.5, 20).note_many("a", 10_000, 4_000)
    assert Windows(0.5, 20).note_many("a", 10_000, 5_000)
    assert Windows(0.5, 20).note_many("a", 10, 10)
    assert not Windows(0.5, 20).note_many("a", 9, 9)
    assert not Windows(0.5, 20).note_many("a", 0, 0)
