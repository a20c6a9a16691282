"""The tables and the picture of `benchmarks.sizes`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.peers.figures import replaced, short
from benchmarks.peers.picture import TEXT, pyplot

#: What grows in a part, for the head of its table.
TITLES = {
    "waiting": "messages waiting, in slices of 10,000",
    "slices": "slices of 100 messages, in one queue",
    "queues": "queues of 1,000 messages in 10 slices and 8 shards",
    "shards": "shards, with 1,024 slices of 100 messages",
    "tenants": "tenants of a fair queue of 100,000 messages",
    "whole": "messages: in 100 slices of one queue; in a million slices of 1,000 queues",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """What one verb costs in a store of one size."""

    part: str
    size: int
    verb: str
    milliseconds: float
    statements: int


#: By catalog, part, size and verb.
Figures: TypeAlias = dict[tuple[str, str, int, str], Figure]


def read(path: Path) -> Figures:
    """Return the figures in a file."""
    known: Figures = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        figure = Figure(**{name: row[name] for name in Figure.__dataclass_fields__})
        known[row["catalog"], figure.part, figure.size, figure.verb] = figure
    return known


def write(path: Path, known: Figures) -> None:
    """Write figures to a file."""
    rows = [{"catalog": key[0], **asdict(figure)} for key, figure in known.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def table(known: Figures, catalog: str, part: str) -> str:
    """Return the table of one part: a column for each size."""
    of = {key[2:]: each for key, each in known.items() if key[:2] == (catalog, part)}
    sizes = sorted({size for size, _ in of})
    verbs = list(dict.fromkeys(verb for _, verb in of))
    head = [f"{catalog}: CPU ms / statements", *(f"{size:,}" for size in sizes)]
    ratios = part == "whole" and len(sizes) > 1
    lines = [[*head, "ratio"] if ratios else head, ["---", *["---:"] * (len(head) - 1 + ratios)]]
    for verb in verbs:
        cells = [of[size, verb] for size in sizes]
        line = [verb, *(f"{short(each.milliseconds)} / {each.statements}" for each in cells)]
        if ratios:
            line.append(f"{cells[-1].milliseconds / cells[0].milliseconds:.2f}")
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(known: Figures) -> str:
    """Return the tables of all parts and catalogs that were measured."""
    texts = []
    for part, title in TITLES.items():
        catalogs = list(dict.fromkeys(key[0] for key in known if key[1] == part))
        if catalogs:
            texts.append(f"**{title[0].upper()}{title[1:]}**")
            texts += [table(known, catalog, part) for catalog in catalogs]
    return "\n\n".join(texts)


def publish(known: Figures, docs: Path) -> None:
    """Put the tables into docs/scale.md, between two lines there, and the picture beside it."""
    draw(known, docs / "growth.svg")
    page = docs / "scale.md"
    picture = "![CPU milliseconds of each verb, by the size of the store](growth.svg)"
    shown = f"{picture}\n\n{tables(known)}\n"
    page.write_text(replaced(page.read_text(), "sizes", shown))


def draw(known: Mapping[tuple[str, str, int, str], Figure], path: Path) -> None:
    """Draw one panel for each part, with a line for each verb, on SQLite."""
    plt = pyplot()
    ours = {key[1:]: each for key, each in known.items() if key[0] == "SQLite"}
    parts = [part for part in TITLES if any(key[0] == part for key in ours)]
    verbs = list(dict.fromkeys(verb for _, _, verb in ours))
    colours = [f"C{number}" for number in range(len(verbs))]
    figure, axes = plt.subplots(-(-len(parts) // 2), 2, figsize=(10, 3 * (-(-len(parts) // 2))))
    for axis in axes.flat[len(parts) :]:
        axis.set_visible(False)
    for axis, part in zip(axes.flat, parts, strict=False):
        for verb, colour in zip(verbs, colours, strict=False):
            points = sorted(
                (size, each.milliseconds)
                for (of, size, name), each in ours.items()
                if (of, name) == (part, verb)
            )
            axis.plot(
                *zip(*points, strict=True), marker="o", markersize=3, color=colour, label=verb
            )
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_title(TITLES[part].replace("; ", ";\n"), color=TEXT, fontsize=8)
        axis.set_ylabel("CPU ms", color=TEXT)
        axis.tick_params(colors=TEXT)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axis.spines[side].set_color(TEXT)
    lines = axes.flat[0].get_legend_handles_labels()
    figure.legend(*lines, loc="lower center", ncols=4, frameon=False, labelcolor=TEXT)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)
