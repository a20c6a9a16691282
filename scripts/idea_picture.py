"""Draw docs/idea.svg, the picture of the front page: load, segment and slices, fire, settle.

The storage keeps each segment as it was written. Only rows of the catalog change, and each step is
one transaction. The picture shows eight messages in three such states.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "idea.svg"

WIDTH, HEIGHT = 920, 316
MESSAGES = 8
#: The left edges and the width of the three panels, and the sizes in them.
LEFTS, PANEL, INDENT, CELL = (12, 316, 620), 288, 20, 31
#: Fill, line and text of each state of messages.
COLOURS = {
    "waiting": ("#dcebf7", "#2f6f9f", "#1d4a6d"),
    "in flight": ("#eee7f6", "#7455a6", "#4d3578"),
    "sideline": ("#f8e6d9", "#a35a2a", "#7a3d16"),
    "deleted": ("none", "#c9ced6", "#5a6472"),
}
_ABOUT = (
    "Eight messages in three steps, each of which is one transaction of the catalog. A load writes "
    "them once, into a segment in the storage, and adds one slice to the catalog. A firing divides "
    "the slice: four messages are in flight at a worker, and four wait. A settlement deletes three "
    "of them, and moves one to the sideline with its reason. The segment stays as it was written."
)


@dataclass(frozen=True)
class Piece:
    """Consecutive messages in one state, which are one slice, or none if they are deleted."""

    count: int
    state: str
    text: str


@dataclass(frozen=True)
class Panel:
    """One transaction, and what the catalog says after it."""

    verb: str
    call: str
    pieces: tuple[Piece, ...]
    note: str


PANELS = (
    Panel(
        "1  load",
        "Spark's sink, or queue.load(rows)",
        (Piece(8, "waiting", "rows 0 to 7 wait"),),
        "one row for all of them: a slice",
    ),
    Panel(
        "2  fire",
        "Spark's source, or a pool of workers",
        (Piece(4, "in flight", "worker A"), Piece(4, "waiting", "wait")),
        "the slice is divided, no data moves",
    ),
    Panel(
        "3  settle",
        "your function returned, or raised",
        (
            Piece(3, "deleted", "deleted"),
            Piece(1, "sideline", "!"),
            Piece(4, "waiting", "wait"),
        ),
        "! sideline: “card declined”, to retry",
    ),
)


def page() -> str:
    """Return the picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="14" role="img" aria-label="{escape(_ABOUT)}">',
        '  <defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 10 5 0 10z" fill="#444"/></marker></defs>',
        f'  <rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for left, panel in zip(LEFTS, PANELS, strict=True):
        parts += _panel(left, panel)
    for left in LEFTS[1:]:
        parts.append(
            f'  <path d="M{left - 15} 158h12" stroke="#444" stroke-width="1.6" '
            'marker-end="url(#tip)"/>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _panel(left: int, panel: Panel) -> list[str]:
    inner = left + INDENT
    return [
        f'  <rect x="{left}" y="12" width="{PANEL}" height="292" rx="10" fill="#f6f7f9" '
        'stroke="#c9ced6"/>',
        _text(inner, 40, panel.verb, "#222", size=18, bold=True),
        _text(inner, 62, panel.call, "#222"),
        _text(inner, 96, "storage: one segment, an Arrow file", "#5a6472"),
        *(_cell(inner + CELL * number, number) for number in range(MESSAGES)),
        f'  <rect x="{inner - 10}" y="158" width="{PANEL - 2 * INDENT + 20}" height="134" rx="8" '
        'fill="#fff" stroke="#444" stroke-dasharray="5 4"/>',
        _text(inner, 182, "catalog: slices, in one transaction", "#5a6472"),
        *_pieces(inner, panel.pieces),
        _text(inner, 274, panel.note, "#222"),
    ]


def _cell(x: int, number: int) -> str:
    """Return a message in the segment; the file is the same in each panel."""
    return (
        f'  <rect x="{x}" y="104" width="{CELL}" height="36" fill="#e9edf2" stroke="#8a94a3"/>\n'
        + _text(x + CELL // 2, 127, str(number), "#39424e", middle=True)
    )


def _pieces(left: int, pieces: tuple[Piece, ...]) -> list[str]:
    parts, first = [], 0
    for piece in pieces:
        fill, line, colour = COLOURS[piece.state]
        x, width = left + CELL * first, CELL * piece.count
        dashes = ' stroke-dasharray="3 3"' if piece.state == "deleted" else ""
        parts.append(
            f'  <rect x="{x + 1}" y="196" width="{width - 2}" height="46" rx="6" fill="{fill}" '
            f'stroke="{line}"{dashes}/>'
        )
        parts.append(_text(x + width // 2, 224, piece.text, colour, middle=True, bold=True))
        first += piece.count
    return parts


def _text(
    x: int, y: int, text: str, colour: str, *, size: int = 14, middle: bool = False,
    bold: bool = False,
) -> str:  # fmt: skip
    anchor = ' text-anchor="middle"' if middle else ""
    weight = ' font-weight="bold"' if bold else ""
    large = f' font-size="{size}"' if size != 14 else ""
    return (
        f'  <text x="{x}" y="{y}" fill="{colour}"{anchor}{weight}{large} xml:space="preserve">'
        f"{escape(text)}</text>"
    )
