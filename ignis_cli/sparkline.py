"""Sparklines: a row of numbers as a line of small bars."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """
    Return the newest *width* of some numbers as bars, from 0 to the highest of them.

    A number that is not known is a space, so that it does not look like 0.
    """
    shown = values[-width:] if width else []
    highest = max((value for value in shown if value is not None), default=0)
    return "".join(" " if value is None else _bar(value, highest) for value in shown)


def _bar(value: float, highest: float) -> str:
    if highest <= 0 or value <= 0:
        return _BARS[0]
    # Whatever is more than nothing is seen to be more than nothing.
    return _BARS[max(1, min(int(value / highest * len(_BARS)), len(_BARS) - 1))]
