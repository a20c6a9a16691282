"""Progress bars that fill from samples of the queues while a run continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo.samples import Sample


@contextmanager
def bars(
    console: Console, shown: Mapping[str, tuple[Callable[[Sample], int], int]]
) -> Iterator[Callable[[Sample], None]]:
    """
    Show bars, each given by its name, a function that counts in a sample, and the full count.

    Yields:
        A function that shows a sample.
    """
    columns = (
        TextColumn("  {task.description:<10}"),
        BarColumn(bar_width=36, complete_style="dark_orange", finished_style="green"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
    )
    with Progress(*columns, console=console) as progress:
        tasks = {
            name: progress.add_task(name, total=total, note="")
            for name, (_, total) in shown.items()
        }

        def show(sample: Sample) -> None:
            for name, (count, _) in shown.items():
                progress.update(tasks[name], completed=count(sample))
            backlog = f"backlog {sample.waiting:,}, in flight {sample.in_flight:,}"
            progress.update(tasks[next(iter(shown))], note=backlog)

        yield show
