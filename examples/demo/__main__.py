"""Run the demo in a new ./out/demo: a run, a picture of it, and a run whose driver is killed."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo import checks, crash, picture, pipeline, report
from examples.demo.flights import read_airlines, read_flights
from examples.demo.samples import Sample
from examples.demo.session import quiet_spark
from queue_core import BadOption, IgnisError

OUT = Path("out", "demo")
#: A picture of the console, in a clone.
PICTURE = Path("docs", "console.png")
#: The demo's files in its folder. A folder that holds anything else is not the demo's.
OWN_FILES = {"run", "crash", "flights.png", "spark.log", "warehouse"}


def main() -> int:
    """Run the demo; return 0 if every check holds, else 1."""
    console = Console(highlight=False)
    begin = time.monotonic()
    try:
        out = empty_folder(OUT.absolute())
        flights = read_flights()
        held = [first_run(console, flights, out), second_run(console, flights, out)]
    except IgnisError as error:
        console.print(f"\n[red]{error}[/]")
        return 1
    console.print(f"\n  [dim]{time.monotonic() - begin:.0f} s in all; everything is in {out}[/]\n")
    command = f"{Path(sys.executable).parent / 'ignis'} --path {out / 'run'} console"
    shown = f" ({PICTURE} shows it)" if PICTURE.exists() else ""
    console.print(
        f"  to see the queues in a browser, at http://127.0.0.1:8413{shown}:\n  {command}\n",
        soft_wrap=True,
    )
    return 0 if all(held) else 1


def first_run(console: Console, flights: pa.Table, out: Path) -> bool:
    """Stream files through a queue, a handler and a second queue; draw a picture of it."""
    console.print(
        f"\n[bold]1. {flights.num_rows:,} flights through a queue[/]\n"
        "   [dim]files → flights → handler → delays → mean delay per carrier and hour[/]\n"
    )
    departed = flights.num_rows - flights["dep_time"].null_count
    shown = {
        "loaded": (lambda sample: sample.loaded, flights.num_rows),
        "handled": (lambda sample: sample.settled, flights.num_rows),
        "counted": (lambda sample: sample.passed_on, departed),
    }
    with quiet_spark(out / "spark.log") as spark, bars(console, shown) as show:
        done = pipeline.run(spark, flights, out / "run", show)
    console.print()
    console.print(report.of_run(done))
    picture.save(picture.draw(done.samples, done.delays, read_airlines()), out / "flights.png")
    console.print(f"\n  picture: {out / 'flights.png'}", soft_wrap=True)
    return print_checks(console, checks.of_run(done, flights))


def second_run(console: Console, flights: pa.Table, out: Path) -> bool:
    """Stream from queue to queue to a handler, with a driver that dies half-way."""
    console.print(
        "\n[bold]2. The same flights, and a driver that is killed half-way[/]\n"
        "   [dim]flights → copies → handler; SIGKILL; started again[/]\n"
    )
    shown = {
        "copied": (lambda sample: sample.loaded, flights.num_rows),
        "handled": (lambda sample: sample.settled, flights.num_rows),
    }
    with bars(console, shown) as show:
        done = crash.crash(flights, out / "crash", show)
    console.print()
    console.print(report.of_crash(done))
    return print_checks(console, checks.of_crash(done, flights))


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


def print_checks(console: Console, found: Mapping[str, bool]) -> bool:
    """Print each check; return whether all hold."""
    console.print()
    for check, holds in found.items():
        console.print(f"  [green]✓[/] {check}" if holds else f"  [red]✗ failed: {check}[/]")
    return all(found.values())


def empty_folder(out: Path) -> Path:
    """Make *out* an empty folder; remove the files of an earlier demo."""
    foreign = {entry.name for entry in out.iterdir()} - OWN_FILES if out.exists() else set()
    if foreign:
        raise BadOption(
            f"{out} holds {', '.join(sorted(foreign))}, which is not the demo's; move it away"
        )
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return out


if __name__ == "__main__":
    sys.exit(main())
