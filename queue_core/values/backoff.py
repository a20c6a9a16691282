"""`exponential` and `constant`: how long a failed message waits."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from queue_core.errors import BadOption
from queue_core.values.durations import FORM, LONGEST_SECONDS, Duration, in_seconds, is_number


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if not is_number(value) or not low <= value < inf or value > high:
        raise BadOption(f"{name}={value!r}: use a number from {low:g} to {high:g}")


def check_wait(name: str, value: object) -> None:
    """Raise `BadOption` unless a value is a number of seconds that a message may wait."""
    if not is_number(value) or not 0 <= value <= LONGEST_SECONDS:
        raise BadOption(f"{name}={value!r}: use {FORM}, from 0 to a hundred years")


def _shown(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(number))


@dataclass(frozen=True, slots=True, repr=False)
class Backoff:
    """Seconds between a failure and the next attempt; `exponential` and `constant` make it."""

    first: float
    factor: float = 1.0
    max: float = LONGEST_SECONDS
    jitter: float = 0.0

    def __post_init__(self) -> None:
        check_wait("first", self.first)
        _check_number("factor", self.factor, 1, 1e6)
        check_wait("max", self.max)
        _check_number("jitter", self.jitter, 0, 1)

    def seconds(self, failures: int) -> float:
        """Return the wait after so many failures, without jitter."""
        try:
            wait = self.first * float(self.factor) ** (max(failures, 1) - 1)
        except OverflowError:
            wait = self.max if self.first else 0.0
        return float(min(wait, self.max))

    def __repr__(self) -> str:
        jitter = f", jitter={_shown(self.jitter)}" if self.jitter else ""
        if self.factor == 1 and self.first <= self.max:
            return f"constant({_shown(self.first)}{jitter})"
        factor, longest = _shown(self.factor), _shown(self.max)
        return f"exponential({_shown(self.first)}, factor={factor}, max={longest}{jitter})"


def exponential(
    first: Duration, factor: float = 2.0, max: Duration = 3600.0, jitter: float = 0.0
) -> Backoff:
    """
    Return waits that grow with each failure.

    Args:
        first: Seconds after the first failure, or a text such as ``"5s"`` or a ``timedelta``; 0 or
            more.
        factor: How many times longer each further wait is, 1 or more.
        max: The longest wait, likewise.
        jitter: The share, 0 to 1, by which each wait is made longer or shorter at random, so that
            messages that failed together do not all come back together. Messages that were
            settled together and loaded together have the same wait.

    Returns:
        The waits, for `Retry`.

    Raises:
        BadOption: A number is out of range.
    """
    return Backoff(in_seconds(first), factor, in_seconds(max), jitter)


def constant(seconds: Duration, jitter: float = 0.0) -> Backoff:
    """
    Return waits that are all equal.

    Args:
        seconds: Seconds after each failure, or a text such as ``"5m"`` or a ``timedelta``; 0 or
            more.
        jitter: The share, 0 to 1, by which each wait is made longer or shorter at random, as for
            `exponential`.

    Returns:
        The waits, for `Retry`.

    Raises:
        BadOption: A number is out of range.
    """
    return Backoff(in_seconds(seconds), jitter=jitter)
