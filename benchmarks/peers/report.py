"""The table of a run, in Markdown, and where it is written."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median as median_of

from benchmarks.peers import picture
from benchmarks.peers.figures import median, replaced, short
from benchmarks.peers.results import Row
from benchmarks.peers.workload import Scale
from benchmarks.peers.workloads import WORKLOADS

#: The peer with which the others are compared.
OURS = "ignis, SQLite"
_HEAD = (
    "| measure | peer | a second | ignis is … times as fast | p50 ms | p99 ms | worst ms | "
    "% of a core | conditions |\n|---|---|---:|---:|---:|---:|---:|---:|---|"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: medians over the rounds, and the worst of all."""

    workload: str
    case: str
    measure: str
    peer: str
    rate: float | None
    #: The median of our rate divided by the peer's, round by round.
    times: float | None
    p50: float | None
    p99: float | None
    worst: float | None
    cpu: float | None
    conditions: str


def lines(rows: Sequence[Row]) -> list[Line]:
    """Return the table's lines, in the order of measuring."""
    found: dict[tuple[str, str, str, str], list[Row]] = {}
    ours: dict[tuple[str, str, str, int], float] = {}
    for row in rows:
        if row.result is None:
            continue
        of = (row.workload, row.case, row.result.measure)
        found.setdefault((*of, row.peer), []).append(row)
        if row.peer == OURS and row.result.rate:
            ours[(*of, row.round)] = row.result.rate
    return [_line(key, rounds, ours) for key, rounds in found.items()]


def _line(
    key: tuple[str, str, str, str],
    rounds: Sequence[Row],
    ours: dict[tuple[str, str, str, int], float],
) -> Line:
    results = [row.result for row in rounds if row.result is not None]
    ratios = [
        ours[(*key[:3], row.round)] / row.result.rate
        for row in rounds
        if row.result is not None and row.result.rate and (*key[:3], row.round) in ours
    ]
    worst = [result.worst for result in results if result.worst is not None]
    return Line(
        *key,
        rate=median(result.rate for result in results),
        times=median_of(ratios) if ratios and key[3] != OURS else None,
        p50=median(result.p50 for result in results),
        p99=median(result.p99 for result in results),
        worst=max(worst, default=None),
        cpu=median(result.cpu for result in results),
        conditions=rounds[-1].conditions,
    )


def table(rows: Sequence[Row], scale: Scale) -> str:
    """Return the whole generated part of a page."""
    found = lines(rows)
    parts = [_conditions(rows, scale)]
    for name in WORKLOADS:
        of_workload = sorted(
            (line for line in found if line.workload == name), key=_place(found, name)
        )
        if of_workload:
            parts.append(f"### {WORKLOADS[name].title[0].upper()}{WORKLOADS[name].title[1:]}")
            parts.append("\n".join([_HEAD, *map(_cells, of_workload)]))
    return "\n\n".join([*parts, _missing(rows)]).rstrip() + "\n"


def _place(found: Sequence[Line], workload: str) -> Callable[[Line], tuple[int, ...]]:
    """Sort by case, then by measure, then by peer, each in the order of measuring."""
    of = [line for line in found if line.workload == workload]
    orders = [
        list(dict.fromkeys(values))
        for values in zip(*((line.case, line.measure, line.peer) for line in of), strict=True)
    ]
    return lambda line: (
        orders[0].index(line.case),
        orders[1].index(line.measure),
        orders[2].index(line.peer),
    )


def _cells(line: Line) -> str:
    figures = (line.rate, line.times, line.p50, line.p99, line.worst, line.cpu)
    named = f"{line.case}: {line.measure}" if line.case else line.measure
    cells = (f"| {named}", line.peer, *(short(each) for each in figures), line.conditions)
    return " | ".join(cells) + " |"


def _conditions(rows: Sequence[Row], scale: Scale) -> str:
    beside = sorted(row.beside for row in rows)
    used = (
        f"Other programs, and servers that waited, used {short(median_of(beside))} % of the "
        f"machine (median; at most {short(beside[-1])} %), looked at before each measurement."
        if beside
        else ""
    )
    return (
        f"`make bench SCALE={scale.name}` on {_machine()}. The peers took turns in "
        f"{_rounds(rows, scale)}; rates and percentiles are medians, the worst is that of all "
        f"rounds. {used} A time is that of one call for a whole batch, unless the heading says "
        "otherwise."
    )


def _rounds(rows: Sequence[Row], scale: Scale) -> str:
    """Return how often the peers were measured, and which cases more often."""
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        of = row.workload, row.case
        found[of] = max(found.get(of, 0), row.round + 1)
    more = [f"{many} of {case!r}" for (_, case), many in found.items() if many > scale.rounds]
    named = "one round" if scale.rounds == 1 else f"{scale.rounds} rounds"
    return f"{named} ({', '.join(more)})" if more else named


def _machine() -> str:
    import pyarrow as pa

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = platform.python_version()
    return f"{cores} cores, {platform.system()}, Python {python}, pyarrow {pa.__version__}"


def _missing(rows: Sequence[Row]) -> str:
    had = {(row.workload, row.case, row.peer) for row in rows if row.result is not None}
    lost = dict.fromkeys(
        (row.peer, row.case if row.missing.startswith("failed") else "all", row.missing)
        for row in rows
        if row.missing and (row.workload, row.case, row.peer) not in had
    )
    if not lost:
        return ""
    cells = [
        f"| {peer} | {case} | {' '.join(why.split()).replace('|', '/')} |"
        for peer, case, why in lost
    ]
    return "\n".join(["### Missing", "", "| peer | case | reason |", "|---|---|---|", *cells])


def write(rows: Sequence[Row], scale: Scale, folder: Path) -> list[Path]:
    """Write table and picture into a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{scale.name}.md"
    page.write_text(table(rows, scale))
    return [page, *picture.draw(lines(rows), folder / f"{scale.name}.svg")]


def publish(rows: Sequence[Row], scale: Scale, docs: Path) -> None:
    """Put table and picture into docs/performance.md, between the two lines `peers` there."""
    picture.draw(lines(rows), docs / "peers.svg")
    page = docs / "performance.md"
    shown = f"![Messages a second of each peer](peers.svg)\n\n{table(rows, scale)}"
    page.write_text(replaced(page.read_text(), "peers", shown))
