"""Tables of the results of the runs, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from examples.demo.crash import Crash
from examples.demo.pipeline import Run


def of_run(run: Run) -> Table:
    """Show the messages, their outcomes and the rate."""
    end = run.samples[-1]
    begin = next(sample.seconds for sample in run.samples if sample.loaded)
    last = next(sample.seconds for sample in run.samples if sample.settled == end.settled)
    seconds = max(last - begin, 1e-3)
    batches = ", ".join(f"{name} {count}" for name, count in run.batches.items())
    return _table(
        {
            "loaded": f"{end.loaded:,}",
            "deleted": f"{end.deleted:,}",
            "sidelined": f"{end.sidelined:,}",
            **{f"  {reason}": f"{count:,}" for reason, count in run.reasons.items()},
            "messages per second": f"{end.settled / seconds:,.0f}",
            "micro-batches": batches,
            "time": f"{seconds:.1f} s from the first load to the last outcome",
        }
    )


def of_crash(crash: Crash) -> Table:
    """Show the queue when its driver died, and at the end."""
    killed, end = crash.killed, crash.ended
    return _table(
        {
            "killed by SIGKILL": f"{crash.processes} processes",
            "settled by then": f"{killed.settled:,}, and {killed.in_flight:,} in flight",
            "settled in the end": f"{end.settled:,}",
            "flights lost": f"{crash.lost:,}",
            "flights doubled": f"{crash.doubled:,}",
            "outcomes": f"{end.deleted:,} deleted, {end.sidelined:,} sidelined, each once",
            "seen by the handler again": f"{crash.seen_again:,}, of the batch that was interrupted",
        }
    )


def _table(rows: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows.items():
        table.add_row(f"  {name}", value)
    return table
