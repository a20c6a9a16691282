"""The state of a breaker that all processes share, and its transitions. Times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from queue_core.handling.breakers.breaker import Breaker

CLOSED, OPEN, PROBING = "closed", "open", "probing"
#: If a breaker opens again within this time, its pause is not reset.
RELAPSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The state of one key of a breaker."""

    state: str = CLOSED
    #: Whether a person has opened or closed it; then only a person changes it.
    forced: bool = False
    #: Since when it is in this state.
    since: int = 0
    #: When the next probe is due, or the present one counts as abandoned; None: never.
    until: int | None = None
    #: The pause before the next probe.
    pause: int = 0
    #: How often it has opened.
    opened: int = 0

    @property
    def stops(self) -> bool:
        """Whether it holds messages back."""
        return self.state != CLOSED


def micros(seconds: float) -> int:
    """Return seconds as microseconds."""
    return int(seconds * 1e6)


def tripped(state: BreakerState, breaker: Breaker, now: int) -> BreakerState | None:
    """Return the state after too many failures; None: unchanged."""
    if state.forced or state.stops:
        return None
    relapsed = state.opened > 0 and now - state.since < micros(RELAPSE_SECONDS)
    pause = state.pause if relapsed else micros(breaker.pause)
    pause = min(max(pause, 1), micros(breaker.max_pause))
    return BreakerState(OPEN, False, now, now + pause, pause, state.opened + 1)


def claimed(state: BreakerState, lease: int, now: int) -> BreakerState | None:
    """Return the state after a process claims the probe that is due; None: it is not due."""
    if not is_due(state, now):
        return None
    return replace(state, state=PROBING, since=now, until=now + lease)


def is_due(state: BreakerState, now: int) -> bool:
    """Return whether a probe is due; also if the clock was set back since."""
    if state.forced or not state.stops or state.until is None:
        return False
    return state.until <= now or state.since > now


def renewed(state: BreakerState, lease: int, now: int) -> BreakerState | None:
    """Return the state of a probe that still runs."""
    return replace(state, until=now + lease) if state.state == PROBING else None


def probed(
    state: BreakerState, breaker: Breaker, failed: bool | None, now: int
) -> BreakerState | None:
    """Return the state after a probe, which may have found no message (*failed* is None)."""
    if state.forced or not state.stops:
        return None
    if failed is False:
        return replace(state, state=CLOSED, since=now, until=None)
    pause = state.pause
    if failed:
        pause = min(2 * pause, micros(breaker.max_pause))
    return replace(state, state=OPEN, since=now, until=now + pause, pause=pause)


def forced(state: BreakerState, to: str, now: int) -> BreakerState:
    """Return the state after a person opens or closes the breaker."""
    opened = state.opened + (to == OPEN and not state.stops)
    return BreakerState(to, True, now, None, state.pause, opened)


def released(state: BreakerState, now: int) -> BreakerState:
    """Return the state after a person leaves the breaker to itself: a probe is due at once."""
    if not state.forced:
        return state
    until = now if state.stops else None
    return replace(state, forced=False, since=now, until=until, pause=max(state.pause, micros(1)))
