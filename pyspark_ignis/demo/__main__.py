"""Run the demo in ./out/demo, made anew: a run, a picture of it, and a run that is killed."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from pyspark_ignis.demo import checks, crash, picture, pipeline, report
from pyspark_ignis.demo.flights import read_airlines, read_flights
from pyspark_ignis.demo.progress import bars
from pyspark_ignis.demo.session import quiet_spark
from queue_core import IgnisError
from queue_core.errors import BadOption

OUT = Path("out", "demo")
#: What the demo leaves in its folder; a folder with anything else in it is not its own.
LEFT = {"run", "crash", "flights.png", "spark.log", "warehouse"}


def main() -> int:
    """Run all of it; 0 when every check holds."""
    console = Console(highlight=False)
    begin = time.monotonic()
    try:
        out = fresh(OUT.absolute())
        flights = read_flights()
        held = [first_run(console, flights, out), second_run(console, flights, out)]
    except IgnisError as error:
        console.print(f"\n[red]{error}[/]")
        return 1
    console.print(f"\n  [dim]{time.monotonic() - begin:.0f} s in all; everything is in {out}[/]\n")
    return 0 if all(held) else 1


def first_run(console: Console, flights: pa.Table, out: Path) -> bool:
    """Files, a queue, a handler, a second queue, and what it amounts to; with a picture."""
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
    return told(console, checks.of_run(done, flights))


def second_run(console: Console, flights: pa.Table, out: Path) -> bool:
    """From queue to queue to a handler, with a driver that dies half-way."""
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
    return told(console, checks.of_crash(done, flights))


def told(console: Console, found: Mapping[str, bool]) -> bool:
    """Print each check; True when all hold."""
    console.print()
    for check, holds in found.items():
        console.print(f"  [green]✓[/] {check}" if holds else f"  [red]✗ not so: {check}[/]")
    return all(found.values())


def fresh(out: Path) -> Path:
    """The empty folder *out*, of which an earlier demo was removed."""
    strange = {entry.name for entry in out.iterdir()} - LEFT if out.exists() else set()
    if strange:
        raise BadOption(
            f"{out} holds {', '.join(sorted(strange))}, which is not the demo's; move it away"
        )
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return out


if __name__ == "__main__":
    sys.exit(main())
