"""How long work stood still around a fault, and how soon it went on after the fault was healed."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

#: What must go on: loads and settlements that returned.
_WORK = ("loaded", "settled")
#: Seconds after its healing in which a fault is the cause of a pause.
_AFTER = 10.0


@dataclass(frozen=True)
class Pause:
    """Seconds of all faults of one kind: the median of them, and the most."""

    #: The longest time without a load, or without a settlement, from a fault's begin until shortly
    #: after its healing.
    stood_still: tuple[float, float]
    #: From the healing until both a load and a settlement had returned.
    went_on: tuple[float, float]


def pauses(entries: Iterable[dict[str, Any]]) -> dict[str, Pause]:
    """Return the pauses of a history, by the name of the fault."""
    done: dict[str, list[float]] = {what: [] for what in _WORK}
    begun: dict[int, tuple[str, float]] = {}
    healed: dict[int, float] = {}
    for entry in entries:
        if entry["what"] in done:
            done[entry["what"]].append(entry["at"])
        elif entry["what"] == "fault":
            begun[entry["fault"]] = entry["name"], entry["at"]
        elif entry["what"] == "healed":
            healed[entry["fault"]] = entry["at"]
    for moments in done.values():
        moments.sort()
    found = defaultdict(list)
    for number, end in healed.items():
        name, begin = begun[number]
        # After the last one nothing may be left to do.
        if all(moments and moments[-1] > end for moments in done.values()):
            still = max(_longest(moments, begin, end + _AFTER) for moments in done.values())
            soon = max(moments[bisect_right(moments, end)] - end for moments in done.values())
            found[name].append((still, soon))
    return {
        name: Pause(*map(_middle_and_most, zip(*each, strict=True))) for name, each in found.items()
    }


def _longest(moments: list[float], begin: float, end: float) -> float:
    """Return the longest time between two moments, of which the second is after *begin*."""
    first, last = max(bisect_right(moments, begin) - 1, 0), bisect_right(moments, end)
    return max((late - early for early, late in pairwise(moments[first : last + 1])), default=0.0)


def _middle_and_most(seconds: Iterable[float]) -> tuple[float, float]:
    known = list(seconds)
    return round(median(known), 2), round(max(known), 2)
