"""The state of a breaker that all processes share, and its transitions. Times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from queue_core.handling.breaker import Breaker

CLOSED, OPEN, PROBING = "closed", "open", "probing"
#: If a breaker opens again within this time, its pause is not reset.
RELAPSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The state of a breaker. A transition that is not possible returns None."""

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
    #: Since when it is not closed, whatever its probes showed; None: it is closed.
    opened_at: int | None = None

    @property
    def stops(self) -> bool:
        """Whether it holds messages back."""
        return self.state != CLOSED

    def is_due(self, now: int) -> bool:
        """Return whether a probe is due; it also is if the clock was set back since."""
        if self.forced or not self.stops or self.until is None:
            return False
        return self.until <= now or self.since > now

    def tripped(self, breaker: Breaker, now: int) -> BreakerState | None:
        """Return the state after too many failures."""
        if self.forced or self.stops:
            return None
        relapsed = self.opened > 0 and now - self.since < _micros(RELAPSE_SECONDS)
        pause = self.pause if relapsed else _micros(breaker.pause)
        pause = min(max(pause, 1), _micros(breaker.max_pause))
        return BreakerState(OPEN, False, now, now + pause, pause, self.opened + 1, now)

    def claimed(self, lease: float, now: int) -> BreakerState | None:
        """Return the state after a process claims the probe that is due, for *lease* seconds."""
        if not self.is_due(now):
            return None
        return replace(self, state=PROBING, since=now, until=now + _micros(lease))

    def probed(self, breaker: Breaker, failed: bool | None, now: int) -> BreakerState | None:
        """Return the state after a probe, which may have found no message (*failed* is None)."""
        if self.forced or not self.stops:
            return None
        if failed is False:
            return replace(self, state=CLOSED, since=now, until=None, opened_at=None)
        pause = min(2 * self.pause, _micros(breaker.max_pause)) if failed else self.pause
        return replace(self, state=OPEN, since=now, until=now + pause, pause=pause)

    def turned(self, to: str, now: int) -> BreakerState:
        """Return the state after a person opens or closes the breaker."""
        opened = self.opened + (to == OPEN and not self.stops)
        since = None if to == CLOSED else self.opened_at if self.stops else now
        return BreakerState(to, True, now, None, self.pause, opened, since)

    def released(self, now: int) -> BreakerState | None:
        """Return the state after a person leaves the breaker to itself: a probe is due at once."""
        if not self.forced:
            return None
        pause = max(self.pause, _micros(1))
        return replace(
            self, forced=False, since=now, until=now if self.stops else None, pause=pause
        )


def _micros(seconds: float) -> int:
    return int(seconds * 1e6)
