"""Explore the specification breadth first, and check the invariants in every state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tests.model.spec import FIRED, Bounds, Rules, State, initial, steps


def _one_place(state: State) -> bool:
    messages = [s.message for s in state.catalog.slices]
    return len(messages) == len(set(messages))


def _nothing_lost(state: State) -> bool:
    here = {s.message for s in state.catalog.slices} | state.catalog.done | state.excused
    there = {m for m, n in enumerate(state.target.copies) if n}
    return state.catalog.known <= here | there


def _nothing_doubled(state: State) -> bool:
    copied = (m for m, n in enumerate(state.target.copies) for _ in range(n))
    arrived = [m for m in (*copied, *state.catalog.done) if m not in state.excused]
    return len(arrived) == len(set(arrived))


def _one_holder(state: State) -> bool:
    fired = [s for s in state.catalog.slices if s.state == FIRED]
    return not state.stolen and all(s.consumer and s.ticket for s in fired)


def _same_rows(state: State) -> bool:
    for driver in (state.driver, state.zombie):
        if driver is not None and driver.phase == "read":
            number = max(n for n, end in enumerate(state.log) if end == driver.end)
            if not driver.rows <= state.read[number]:
                return False
    return True


def _fresh_numbers(state: State) -> bool:
    return not state.reused


#: What must hold in every state; the numbers are those of the protocol's sections.
INVARIANTS: dict[str, Callable[[State], bool]] = {
    "a message is in one slice at most": _one_place,
    "a message is in a slice until it is done or has arrived": _nothing_lost,
    "a message arrives once": _nothing_doubled,
    "a fired slice has one holder": _one_holder,
    "a batch that runs again has the same rows, or some of them": _same_rows,
    "a ticket that Spark has logged is not given out again": _fresh_numbers,
}


@dataclass(frozen=True)
class Found:
    """The result: how many states there are, and the shortest way to one that breaks a rule."""

    states: int
    broken: str | None = None
    trace: tuple[str, ...] = ()


def explore(bounds: Bounds, rules: Rules = Rules()) -> Found:  # noqa: B008 - frozen
    """Visit every state within the bounds; stop at the first that breaks an invariant."""
    first = initial(bounds)
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for name, following in steps(state, rules, bounds):
            if following in came_from:
                continue
            came_from[following] = (state, name)
            for invariant, holds in INVARIANTS.items():
                if not holds(following):
                    return Found(len(came_from), invariant, _trace(following, came_from))
            waiting.append(following)
    return Found(len(came_from))


def _trace(state: State, came_from: dict[State, tuple[State, str] | None]) -> tuple[str, ...]:
    names = []
    while (before := came_from[state]) is not None:
        state, name = before
        names.append(name)
    return tuple(reversed(names))
