"""The transitions of a breaker's shared state."""

from queue_core.handling.breakers.breaker import Breaker
from queue_core.handling.breakers.states import (
    CLOSED,
    OPEN,
    PROBING,
    BreakerState,
    claimed,
    forced,
    is_due,
    probed,
    released,
    renewed,
    tripped,
)

BREAKER = Breaker(pause=1, max_pause=4)
SECOND = 1_000_000
NOW = 10**15


def opened():
    return tripped(BreakerState(), BREAKER, NOW)


def test_it_opens_once_and_a_probe_is_due_after_the_pause():
    state = opened()

    assert (state.state, state.until, state.opened) == (OPEN, NOW + SECOND, 1)
    assert tripped(state, BREAKER, NOW + 1) is None
    assert not is_due(state, NOW + SECOND - 1)
    assert is_due(state, NOW + SECOND)


def test_one_process_probes_and_another_one_if_that_one_dies():
    due = NOW + SECOND
    state = claimed(opened(), 5 * SECOND, due)

    assert state.state == PROBING
    assert claimed(state, 5 * SECOND, due + 1) is None
    kept = renewed(state, 5 * SECOND, due + 4 * SECOND)
    assert claimed(kept, 5 * SECOND, due + 8 * SECOND) is None
    assert claimed(kept, 5 * SECOND, due + 9 * SECOND).state == PROBING


def test_the_pause_doubles_up_to_its_longest():
    state, pauses = opened(), []
    for _ in range(4):
        state = probed(state, BREAKER, True, NOW)
        pauses.append(state.pause // SECOND)

    assert pauses == [2, 4, 4, 4]
    assert probed(state, BREAKER, None, NOW).pause == 4 * SECOND


def test_a_success_closes_it_and_a_relapse_keeps_the_pause():
    state = probed(probed(opened(), BREAKER, True, NOW), BREAKER, False, NOW)

    assert (state.state, state.until) == (CLOSED, None)
    assert probed(state, BREAKER, True, NOW) is None
    assert tripped(state, BREAKER, NOW + SECOND).pause == 2 * SECOND
    assert tripped(state, BREAKER, NOW + 61 * SECOND).pause == SECOND


def test_what_a_person_has_set_only_a_person_changes():
    for to in (OPEN, CLOSED):
        state = forced(opened(), to, NOW)
        assert (state.state, state.forced, state.until) == (to, True, None)
        assert tripped(state, BREAKER, NOW) is None
        assert probed(state, BREAKER, False, NOW) is None
        assert not is_due(state, NOW + 10**12)


def test_left_to_itself_an_open_one_probes_at_once():
    assert is_due(released(forced(BreakerState(), OPEN, NOW), NOW), NOW)
    assert released(forced(BreakerState(), CLOSED, NOW), NOW).state == CLOSED
    assert released(opened(), NOW + 5) == opened()


def test_a_clock_that_was_set_back_does_not_keep_it_open():
    assert is_due(opened(), NOW - 3600 * SECOND)
