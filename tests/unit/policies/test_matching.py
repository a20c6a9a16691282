"""Closing messages cancel openings of their key, the newest or the oldest first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.policies.matching import Cancelled, cancel

#: A new message: its key, and whether it opens, closes, or does neither.
EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["open", "close", "neither"])), max_size=12
)
QUEUED = st.lists(st.integers(0, 2), max_size=8)


def cancelled(queued: list[int], new: list[tuple[int, str]], order: str) -> Cancelled:
    return cancel(
        np.array(queued, np.int64),
        np.array([key for key, _ in new], np.int64),
        np.array([kind == "open" for _, kind in new], np.bool_),
        np.array([kind == "close" for _, kind in new], np.bool_),
        keys=3,
        order=order,
    )


def flags(result: Cancelled) -> tuple[list[bool], list[bool], list[bool]]:
    return result.queued.tolist(), result.opened.tolist(), result.closed.tolist()


@pytest.mark.parametrize(
    ("order", "queued"), [("newest", [False, True]), ("oldest", [True, False])]
)
def test_a_closing_cancels_one_queued_opening(order, queued):
    assert flags(cancelled([0, 0], [(0, "close")], order)) == (queued, [False], [True])


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_closing_without_an_opening_of_its_key_does_nothing(order):
    new = [(0, "close"), (0, "open")]
    assert flags(cancelled([1], new, order)) == ([False], [False, False], [False, False])


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_closing_cancels_an_opening_of_the_same_load(order):
    new = [(0, "open"), (0, "neither"), (0, "close")]
    expected = ([], [True, False, False], [False, False, True])
    assert flags(cancelled([], new, order)) == expected


def test_the_order_chooses_between_queued_and_new_openings():
    new = [(0, "open"), (0, "close")]
    assert flags(cancelled([0], new, "newest")) == ([False], [True, False], [False, True])
    assert flags(cancelled([0], new, "oldest")) == ([True], [False, False], [False, True])


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_nothing_at_all(order):
    assert flags(cancelled([], [], order)) == ([], [], [])


@pytest.mark.parametrize("order", ["newest", "oldest"])
@given(queued=QUEUED, new=EVENTS)
def test_it_does_what_a_loop_does(order: str, queued: list[int], new: list[tuple[int, str]]):
    gone: list[bool] = [False] * len(queued)
    opened, closed = [False] * len(new), [False] * len(new)
    openings = [(key, gone, at) for at, key in enumerate(queued)]
    for at, (key, kind) in enumerate(new):
        if kind == "open":
            openings.append((key, opened, at))
        elif kind == "close":
            same = [opening for opening in openings if opening[0] == key]
            if same:
                _, marks, index = taken = same[-1 if order == "newest" else 0]
                marks[index] = closed[at] = True
                openings.remove(taken)

    assert flags(cancelled(queued, new, order)) == (gone, opened, closed)
