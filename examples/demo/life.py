"""Observe where the messages of a queue are over time, and draw it."""

from __future__ import annotations

import time

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from examples.demo.picture import GRID, IN_FLIGHT, INK, PALE, SETTLED, SIDELINED, WAITING
from examples.demo.samples import Sampler
from queue_core import Queue

#: The layers of the picture from the bottom up, with their colours.
_LAYERS = {
    "deleted": SETTLED,
    "expired": PALE,
    "sideline": SIDELINED,
    "in_flight": IN_FLIGHT,
    "waiting": WAITING,
}


class Observer(Sampler):
    """Samples a queue from one cell of a notebook to another, with marks for the picture."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue, lambda _: None)
        #: The marks: seconds since the beginning, and a text.
        self.marks: list[tuple[float, str]] = []

    def start(self) -> Observer:
        """Begin to sample."""
        self.__enter__()
        self.take()
        return self

    def stop(self) -> None:
        """Take the last sample."""
        self.__exit__()

    def mark(self, text: str) -> None:
        """Mark this moment in the picture."""
        self.marks.append((time.monotonic() - self._begin, text))


def draw_life(observer: Observer) -> Figure:
    """Draw all messages over time, and below them those in the sideline and in flight."""
    figure = Figure(figsize=(12, 7.5), facecolor="white", layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.2, 1))
    _stack(above, observer, list(_LAYERS))
    above.set_title("Where all messages are", loc="left", color=INK, fontweight="bold")
    _stack(below, observer, ["sideline", "in_flight"])
    below.set_title("In the sideline, and in flight", loc="left", color=INK, fontweight="bold")
    below.set_xlabel("seconds", color=PALE)
    for number, (seconds, what) in enumerate(observer.marks):
        for axes in (above, below):
            axes.axvline(seconds, color=INK, lw=0.8, ls=":")
        # At different heights, because some marks are close together.
        height = 0.96 - 0.09 * (number % 4)
        across = below.get_xaxis_transform()
        late = seconds > 0.9 * observer.samples[-1].seconds
        side = "right" if late else "left"
        below.text(seconds, height, f" {what} ", transform=across, color=INK, va="top", ha=side)
    above.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, frameon=False, labelcolor=INK)
    return figure


def _stack(axes: Axes, observer: Observer, names: list[str]) -> None:
    seconds = [each.seconds for each in observer.samples]
    counts = [[getattr(each, name) for each in observer.samples] for name in names]
    labels = [name.replace("_", " ") for name in names]
    axes.stackplot(seconds, counts, labels=labels, colors=[_LAYERS[name] for name in names], lw=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set(xlim=(seconds[0], seconds[-1]), ylim=(0, None))
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=PALE, labelcolor=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
