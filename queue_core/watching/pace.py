"""How fast a queue gets and hands out messages, by its samples."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from queue_core.watching.present import FigureSample

#: Seconds of samples that say how fast a queue grows, and the fewest of them.
TREND_SECONDS, LEAST_SECONDS = 300.0, 120.0


class Pace(NamedTuple):
    """How fast a queue has got and handed out messages lately, per second."""

    gets: float
    gives: float
    #: Whether it has grown from each third of that time to the next.
    grows: bool
    #: Whether it got messages in both halves of that time, and handed them out.
    lasts: bool
    flows: bool


def pace_of(samples: Sequence[FigureSample]) -> Pace | None:
    """Return the pace that samples show; None if they are of too short a time."""
    begin = samples[-1].taken_at - TREND_SECONDS if samples else 0.0
    recent = [each for each in samples if each.taken_at >= begin and each.loaded_per_s is not None]
    if len(recent) < 3 or recent[-1].taken_at - recent[0].taken_at < LEAST_SECONDS:
        return None
    third = len(recent) // 3
    parts = (recent[:third], recent[third:-third], recent[-third:])
    waiting = [fmean(each.waiting or 0 for each in part) for part in parts]
    gets = [(each.loaded_per_s or 0) + (each.returned_per_s or 0) for each in recent]
    gives = [each.fired_per_s or 0 for each in recent]
    half = len(gets) // 2
    return Pace(
        fmean(gets),
        fmean(gives),
        waiting[0] < waiting[1] < waiting[2],
        all(map(sum, (gets[:half], gets[half:]))),
        all(map(sum, (gives[:half], gives[half:]))),
    )
