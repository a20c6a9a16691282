"""Charts: lines and bars as paths of SVG, made on the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: A time in seconds, and a figure; None: it is not known.
Point = tuple[float, float | None]


class Line(NamedTuple):
    """A line in a box: its path, the area below it, and the extremes of its figures."""

    path: str
    area: str
    lowest: float | None
    highest: float | None
    latest: float | None


def line(
    points: Sequence[Point],
    begin: float,
    end: float,
    width: float,
    height: float,
    *,
    gap: float,
    top: float | None = None,
) -> Line:
    """
    Return a line from *begin* to *end*, in a box of *width* and *height*.

    The line breaks where a figure is unknown, and where more than *gap* seconds have no figure.
    *top* is the figure at the upper edge; by default, the highest one.
    """
    parts = _parts(points, begin, end, gap)
    values = [value for part in parts for _, value in part]
    if not values:
        return Line("", "", None, None, None)
    highest = max(values)
    scale = (height - 2) / (top or highest or 1)
    across = width / max(end - begin, 1e-9)
    paths, areas = [], []
    for part in parts:
        spots = [
            (round((at - begin) * across, 1), round(height - 1 - value * scale, 1))
            for at, value in part
        ]
        if len(spots) == 1:
            # One figure is a short dash, so that it can be seen.
            spots.append((round(spots[0][0] + 1.5, 1), spots[0][1]))
        text = "L".join(f"{x:g} {y:g}" for x, y in spots)
        paths.append(f"M{text}")
        areas.append(f"M{spots[0][0]:g} {height:g}L{text}L{spots[-1][0]:g} {height:g}Z")
    return Line("".join(paths), "".join(areas), min(values), highest, values[-1])


def bars(values: Sequence[float], width: float, height: float) -> list[tuple[float, ...]]:
    """Return a rectangle for each figure: x, y, width and height. More than 0 is seen as more."""
    step = width / max(len(values), 1)
    highest = max(values, default=0) or 1
    tall = [max(value / highest * height, 1.0 if value > 0 else 0.0) for value in values]
    return [
        (round(place * step, 2), round(height - high, 2), round(step * 0.8, 2), round(high, 2))
        for place, high in enumerate(tall)
    ]


def _parts(
    points: Iterable[Point], begin: float, end: float, gap: float
) -> list[list[tuple[float, float]]]:
    parts: list[list[tuple[float, float]]] = []
    last: float | None = None
    for at, value in points:
        if not begin <= at <= end:
            continue
        if value is None:
            last = None
            continue
        if last is None or at - last > gap:
            parts.append([])
        parts[-1].append((at, value))
        last = at
    return parts
