"""The report of a soak: tables for people, a file for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.referee import Counts
from tests.soak.soak import Result

#: Columns that must be 0 have another colour if they are not.
_MUST_BE_ZERO = ("lost", "unexpected", "duplicated", "disordered", "together")


def show(result: Result, console: Console) -> None:
    """Print a result."""
    table = Table(title="Messages", title_justify="left")
    table.add_column("queue")
    for name in [field.name for field in fields(Counts)]:
        table.add_column(name, justify="right")
    for queue, counts in result.verdict.queues.items():
        cells = [
            f"[red]{value:,}[/red]" if name in _MUST_BE_ZERO and value else f"{value:,}"
            for name, value in asdict(counts).items()
        ]
        table.add_row(queue, *cells)
    console.print(table)
    _show_faults(console, result)
    _show_counts(console, "Handed out again, because of", result.verdict.reasons)
    _show_counts(console, "Errors that callers got", result.errors)
    for fate, queue, number in result.verdict.offenders:
        console.print(f"{fate}: message {number} of {queue}", style="red")
    if result.verdict.overfull:
        console.print(f"a bounded queue was too full {result.verdict.overfull} times", style="red")
    for broken in result.broken:
        console.print(escape(broken), style="red")
    total = sum(result.faults.values())
    verdict = "[green]every promise was kept" if result.right else "[bold red]NOT as promised"
    console.print(f"{total:,} faults in {result.seconds:,.0f} s, seed {result.seed}: {verdict}")


def save(result: Result, file: Path) -> None:
    """Write a result as JSON."""
    file.write_text(json.dumps(result.as_dict(), indent=2) + "\n")


def _show_faults(console: Console, result: Result) -> None:
    table = Table(title="Faults, and seconds (median and most)", title_justify="left")
    table.add_column("fault")
    for name in ("number", "work stood still", "went on after it"):
        table.add_column(name, justify="right")
    for name, number in result.faults.items():
        pause = result.pauses.get(name)
        seconds = (pause.stood_still, pause.went_on) if pause else ()
        cells = [f"{middle:.1f}, {most:.1f}" for middle, most in seconds]
        table.add_row(name, f"{number:,}", *cells)
    console.print(table)


def _show_counts(console: Console, title: str, counts: Mapping[str, int]) -> None:
    shown = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    console.print(f"{title}: {shown or 'none'}")
