"""The transitions of a breaker's shared state."""

from queue_core.handling.breaker import Breaker
from queue_core.handling.breaker_state import CLOSED, OPEN, PROBING, BreakerState

BREAKER = Breaker(pause=1, max_pause=4)
SECOND = 1_000_000
NOW = 10**15


def opened():
    return BreakerState().tripped(BREAKER, NOW)


def test_it_opens_once_and_a_probe_is_due_after_the_pause():
    state = opened()

    assert (state.state, state.until, state.opened) == (OPEN, NOW + SECOND, 1)
    assert state.tripped(BREAKER, NOW + 1) is None
    assert not state.is_due(NOW + SECOND - 1)
    assert state.is_due(NOW + SECOND)


def test_one_process_probes_and_another_one_when_its_lease_ends():
    due = NOW + SECOND
    state = opened().claimed(5, due)

    assert state.state == PROBING
    assert state.claimed(5, due + 1) is None
    assert state.claimed(5, due + 5 * SECOND).state == PROBING


def test_the_pause_doubles_up_to_its_longest():
    state, pauses = opened(), []
    for _ in range(4):
        state = state.probed(BREAKER, True, NOW)
        pauses.append(state.pause // SECOND)

    assert pauses == [2, 4, 4, 4]
    assert state.probed(BREAKER, None, NOW).pause == 4 * SECOND


def test_a_success_closes_it_and_a_relapse_keeps_the_pause():
    state = opened().probed(BREAKER, True, NOW).probed(BREAKER, False, NOW)

    assert (state.state, state.until) == (CLOSED, None)
    assert state.probed(BREAKER, True, NOW) is None
    assert state.tripped(BREAKER, NOW + SECOND).pause == 2 * SECOND
    assert state.tripped(BREAKER, NOW + 61 * SECOND).pause == SECOND


def test_what_a_person_has_set_only_a_person_changes():
    for to in (OPEN, CLOSED):
        state = opened().turned(to, NOW)
        assert (state.state, state.forced, state.until) == (to, True, None)
        assert state.tripped(BREAKER, NOW) is None
        assert state.probed(BREAKER, False, NOW) is None
        assert not state.is_due(NOW + 10**12)


def test_left_to_itself_an_open_one_probes_at_once():
    assert BreakerState().turned(OPEN, NOW).released(NOW).is_due(NOW)
    assert BreakerState().turned(CLOSED, NOW).released(NOW).state == CLOSED
    assert opened().released(NOW + 5) is None


def test_a_clock_that_was_set_back_does_not_keep_it_open():
    assert opened().is_due(NOW - 3600 * SECOND)
