"""Observe where the messages of a queue are over time, and draw it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from examples.demo.picture import GRID, IN_FLIGHT, INK, PALE, SETTLED, SIDELINED, WAITING
from queue_core import Queue

INTERVAL = 0.1

#: The layers of the picture from the bottom up, with their colours.
_LAYERS = {
    "deleted": SETTLED,
    "expired": PALE,
    "sideline": SIDELINED,
    "in_flight": IN_FLIGHT,
    "waiting": WAITING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Numbers of messages by state at one moment; their sum is all published messages."""

    #: Seconds since the observation began.
    seconds: float
    #: Waiting in main.
    waiting: int
    #: In flight from either magazine.
    in_flight: int
    #: Waiting in the sideline.
    sideline: int
    deleted: int
    expired: int


class Observer:
    """Samples a queue in a thread, from `start` to `stop`."""

    def __init__(self, queue: Queue) -> None:
        self.seen: list[Whereabouts] = []
        #: The marks: seconds since the beginning, and a text.
        self.marks: list[tuple[float, str]] = []
        self._queue = queue
        self._begin = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> Observer:
        """Begin to sample."""
        self.look()
        self._thread.start()
        return self

    def stop(self) -> None:
        """Take the last sample."""
        self._ended.set()
        self._thread.join()
        self.look()

    def mark(self, text: str) -> None:
        """Mark this moment in the picture."""
        self.marks.append((time.monotonic() - self._begin, text))

    def look(self) -> Whereabouts:
        """Take one sample."""
        shards = self._queue.metadata()
        main = shards.filter(pc.equal(shards["magazine"], "main"))
        sideline = shards.filter(pc.equal(shards["magazine"], "sideline"))
        now = Whereabouts(
            seconds=time.monotonic() - self._begin,
            waiting=_sum(main, "waiting"),
            in_flight=_sum(shards, "in_flight"),
            sideline=_sum(sideline, "waiting"),
            deleted=_sum(shards, "deleted"),
            expired=_sum(shards, "expired"),
        )
        self.seen.append(now)
        return now

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.look()


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
        late = seconds > 0.9 * observer.seen[-1].seconds
        side = "right" if late else "left"
        below.text(seconds, height, f" {what} ", transform=across, color=INK, va="top", ha=side)
    above.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, frameon=False, labelcolor=INK)
    return figure


def _stack(axes: Axes, observer: Observer, names: list[str]) -> None:
    seconds = [each.seconds for each in observer.seen]
    counts = [[getattr(each, name) for each in observer.seen] for name in names]
    labels = [name.replace("_", " ") for name in names]
    axes.stackplot(seconds, counts, labels=labels, colors=[_LAYERS[name] for name in names], lw=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set(xlim=(seconds[0], seconds[-1]), ylim=(0, None))
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=PALE, labelcolor=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _sum(shards: pa.Table, column: str) -> int:
    return int(pc.sum(shards[column]).as_py())
