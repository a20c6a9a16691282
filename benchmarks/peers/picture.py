"""The picture of a run: the rates of all peers as bars from zero, for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.figures import short

if TYPE_CHECKING:
    from benchmarks.peers.report import Line

#: Seen on white and on black.
TEXT, _OURS, _OTHERS = "#7a7f87", "#e8590c", "#4c8dd6"
_COLUMNS = 2
#: What is drawn, of the workloads that have rates.
_WORKLOADS = ("bulk", "tasks", "handlers")


def pyplot() -> Any:
    """Return pyplot for SVG: the same figures draw the same file, and text stays text."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "ignis", "svg.fonttype": "none", "font.size": 8})
    return plt


def draw(lines: Sequence[Line], path: Path) -> list[Path]:
    """Draw one panel for each case and measure that several peers share; return the files."""
    panels: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        if _is_shown(line):
            panels.setdefault((line.workload, line.case, line.measure), []).append(line)
    panels = {key: of for key, of in panels.items() if len(of) > 1}
    if not panels:
        return []
    plt = pyplot()
    rows = -(-len(panels) // _COLUMNS)
    most = max(len(of) for of in panels.values())
    figure, axes = plt.subplots(
        rows, _COLUMNS, figsize=(10, rows * (1.0 + 0.2 * most)), squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (key, of) in zip(axes.flat, panels.items(), strict=False):
        _panel(axis, key, of)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)
    return [path]


def _is_shown(line: Line) -> bool:
    """Return whether a line is in the picture; the table has them all."""
    if line.rate is None or line.workload not in _WORKLOADS or line.measure.endswith("the clock"):
        return False
    return line.workload != "bulk" or line.case.startswith("100 bytes")


def _panel(axis, key: tuple[str, str, str], of: Sequence[Line]) -> None:
    workload, case, measure = key
    names = [line.peer for line in of]
    rates = [line.rate or 0.0 for line in of]
    colours = [_OURS if name.startswith("ignis") else _OTHERS for name in names]
    bars = axis.barh(names, rates, color=colours)
    axis.bar_label(bars, [short(rate) for rate in rates], padding=3, color=TEXT)
    # Wide titles would be cut off.
    axis.set_title(f"{workload}, {case}\n{measure}, messages a second", color=TEXT, fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    # The figures are beside the bars.
    axis.set_xticks([])
    axis.tick_params(colors=TEXT, length=0)
    for side in ("top", "right", "bottom"):
        axis.spines[side].set_visible(False)
    axis.spines["left"].set_color(TEXT)
