"""The picture of a run: the queue over time, and the delays that its messages add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from examples.demo.samples import Sample

INK, PALE, GRID = "#22304a", "#7b879c", "#e6e9ef"
WAITING, IN_FLIGHT, SETTLED, SIDELINED = "#f4a259", "#e4572e", "#2e86ab", "#7d5ba6"
#: Minutes of delay.
SCALE = "YlOrRd"
#: Cells with fewer flights are left blank.
FEW = 10


def draw(samples: Sequence[Sample], delays: pa.Table, airlines: Mapping[str, str]) -> Figure:
    """Draw the whole picture; *delays* has the columns of `flights.delays_of`."""
    figure = Figure(figsize=(12, 9.2), facecolor="white", layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.55), width_ratios=(2.1, 1))
    draw_backlog(figure.add_subplot(grid[0, :]), samples)
    carriers = _by_delay(delays)
    left = figure.add_subplot(grid[1, 0])
    draw_hours(left, delays, carriers, airlines)
    draw_carriers(figure.add_subplot(grid[1, 1], sharey=left), delays, carriers)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the picture as PNG."""
    figure.savefig(path, dpi=150)


def draw_backlog(axes: Axes, samples: Sequence[Sample]) -> None:
    """Draw waiting, in-flight and settled messages over time."""
    _plain(axes, "The queue over time")
    begin = next((s.seconds for s in samples if s.loaded), 0.0)
    shown = [sample for sample in samples if sample.seconds >= begin - 1]
    seconds = [sample.seconds - begin for sample in shown]
    in_flight = np.array([sample.in_flight for sample in shown])
    backlog = in_flight + [sample.waiting for sample in shown]
    axes.fill_between(seconds, backlog, color=WAITING, lw=0, step="post", label="waiting")
    axes.fill_between(seconds, in_flight, color=IN_FLIGHT, lw=0, step="post", label="in flight")
    axes.set(xlabel="seconds", ylabel="backlog", xlim=(seconds[0], seconds[-1]), ylim=(0, None))
    axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.grid(axis="y", color=GRID, lw=0.8)
    total = axes.twinx()
    _plain(total)
    settled = [sample.settled for sample in shown]
    total.plot(seconds, settled, color=SETTLED, lw=2.2, label="settled in total")
    sidelined = [sample.sidelined for sample in shown]
    total.plot(seconds, sidelined, color=SIDELINED, lw=2.2, label="of these, sidelined")
    total.set(ylabel="settled", ylim=(0, max(settled[-1], 1) * 1.06))
    total.yaxis.set_major_formatter(FuncFormatter(_thousands))
    handles = [each for side in (axes, total) for each in side.get_legend_handles_labels()[0]]
    total.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=4,
        frameon=False,
        labelcolor=INK,
        handlelength=1.2,
    )


def draw_hours(
    axes: Axes, delays: pa.Table, carriers: Sequence[str], airlines: Mapping[str, str]
) -> None:
    """Draw the mean delay of each carrier in each hour as colours."""
    _plain(axes, "Mean delay at departure, by carrier and planned hour")
    hours, cells = _cells(delays, carriers)
    mesh = axes.pcolormesh(
        np.append(hours, hours[-1] + 1) - 0.5,
        np.arange(len(carriers) + 1) - 0.5,
        cells,
        cmap=SCALE,
        vmin=0,
        vmax=float(np.nanpercentile(cells, 97)),
        edgecolor="white",
        lw=1,
    )
    axes.set_yticks(range(len(carriers)), [airlines.get(code, code) for code in carriers])
    axes.set(xlabel="hour of the day")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    assert axes.figure is not None
    bar = axes.figure.colorbar(mesh, ax=axes, location="bottom", aspect=45, pad=0.02, extend="both")
    bar.outline.set_visible(False)
    bar.set_label("minutes", color=PALE)
    bar.ax.tick_params(colors=PALE, length=0)


def draw_carriers(axes: Axes, delays: pa.Table, carriers: Sequence[str]) -> None:
    """Draw the mean delay of each carrier, with its number of flights."""
    _plain(axes, "Over the whole year")
    means, flights = _means(delays)
    lengths = [means[code] for code in carriers]
    axes.barh(range(len(carriers)), lengths, color=SETTLED, height=0.72)
    for row, code in enumerate(carriers):
        text = f" {means[code]:.1f} min, {flights[code]:,} flights"
        axes.text(means[code], row, text, va="center", color=INK, fontsize=8.5)
    axes.set(xlim=(0, max(lengths) * 1.75), xticks=[])
    axes.tick_params(labelleft=False)
    axes.spines["bottom"].set_visible(False)


def _plain(axes: Axes, title: str | None = None) -> None:
    axes.set_axisbelow(True)
    axes.tick_params(colors=PALE, labelcolor=INK, length=0)
    axes.xaxis.label.set_color(PALE)
    axes.yaxis.label.set_color(PALE)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    if title:
        axes.set_title(title, loc="left", color=INK, fontsize=12.5, fontweight="bold", pad=10)


def _means(delays: pa.Table) -> tuple[dict[str, float], dict[str, int]]:
    """Return the mean delay in minutes and the number of flights, by carrier."""
    minutes: dict[str, float] = {}
    flights: dict[str, int] = {}
    for row in delays.to_pylist():
        code, count = row["carrier"], row["flights"]
        minutes[code] = minutes.get(code, 0.0) + row["delay"] * count
        flights[code] = flights.get(code, 0) + count
    return {code: minutes[code] / flights[code] for code in flights}, flights


def _by_delay(delays: pa.Table) -> list[str]:
    means, _ = _means(delays)
    return sorted(means, key=means.__getitem__)


def _cells(
    delays: pa.Table, carriers: Sequence[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return minutes by carrier and hour; NaN where there are too few flights."""
    rows = [row for row in delays.to_pylist() if row["flights"] >= FEW]
    first, last = min(row["hour"] for row in rows), max(row["hour"] for row in rows)
    cells = np.full((len(carriers), last - first + 1), np.nan)
    for row in rows:
        cells[carriers.index(row["carrier"]), row["hour"] - first] = row["delay"]
    return np.arange(first, last + 1), cells


def _thousands(value: float, _: int | None) -> str:
    return f"{value:,.0f}"
