"""A thread that moves messages back to main within a second of their time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from queue_core.support.loop import Loop

if TYPE_CHECKING:
    from queue_core.upkeep.tasks.retries import Retries

#: The most seconds between two looks. A message may get an earlier time than all others meanwhile.
LOOK_SECONDS = 0.5
#: Seconds until the next look after an error.
_ERROR_SECONDS = 5.0


def retry_thread(
    make: Callable[[], Retries],
    names: Callable[[], Collection[str] | None],
    *,
    start: float = LOOK_SECONDS,
) -> Loop:
    """
    Return the thread that runs `Retries`; one of its own, since other tasks may take minutes.

    Args:
        make: Makes the `Retries`; called in the thread, so that nothing waits for its imports.
        names: Returns the names of the queues; None: all.
        start: Seconds until the first look.
    """
    made: list[Retries] = []

    def look() -> float:
        if not made:
            made.append(make())
        _, left = made[0].run(names())
        return min(left, LOOK_SECONDS)

    return Loop("retries", look, first=start, retry=_ERROR_SECONDS)
