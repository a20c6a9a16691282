"""
The long campaign: queue to queue through Spark is exactly once, with kills at any time.

    python -m tests.crash.spark.campaign --seed 7 --only points
    python -m tests.crash.spark.campaign --seed 7 --only points --part 2/5

Copies a million messages from queue to queue, several times, while the driver with its JVM and all
its Python workers is killed: at every named point that a copy passes, at the first and at a later
passage, and at random moments; then all of it again while the checkpoint loses its newest notes
between the lives. In the runs of readers, queries read the log of a queue and subscriptions to it,
while a person loads and seeks (`tests.crash.spark.readers`). With --part, each run has only its
share of the deaths, in a scene of its own.
Ends with 1 if a message was lost, doubled or made up, or anything is left over.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.crash.spark.driver import Job
from tests.crash.spark.readers import Reading, ReadScene
from tests.crash.spark.runs import READING, Death, Obituary, at_points, at_random, live_through
from tests.crash.spark.scene import Scene
from tests.referee import Counts

#: The counts of the referee that concern a copy.
COUNTS = ["attempted", "acknowledged", "delivered", "lost", "unexpected", "duplicated", "recovered"]
#: Micro-batches that a run has at least: so many that there are messages left for each life.
BATCHES_FOR_POINTS = 150
BATCHES_FOR_RANDOM = 400
#: Messages of one micro-batch of a reader of a log.
READ_LIMIT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A scene of its own, and how its drivers die."""

    name: str
    deaths: list[Death]
    batches: int
    #: Whether the readers of a log die, and not a copy.
    reads: bool = False


def runs(seed: int, kills: int) -> list[Run]:
    """All of the campaign; the same for the same seed."""
    chance = random.Random(seed)
    points = {
        "points": at_points(),
        "points-commit": at_points(loss="commit"),
        "points-batch": at_points(loss="batch"),
        "points-alone": at_points(action="exit"),
    }
    moments = {
        "random": at_random(kills, chance),
        "random-notes": at_random(kills, chance, losses=("commit", "batch")),
    }
    readers = {
        "readers-points": at_points(READING),
        "readers-random": at_random(kills, random.Random(seed + 1)),
    }
    return [
        *(Run(name=name, deaths=d, batches=BATCHES_FOR_POINTS) for name, d in points.items()),
        *(Run(name=name, deaths=d, batches=BATCHES_FOR_RANDOM) for name, d in moments.items()),
        *(Run(name=name, deaths=d, batches=0, reads=True) for name, d in readers.items()),
    ]


def main() -> int:
    """Run the campaign of the command line; return 0 if all messages came out exactly once."""
    # So that no driver outlives a campaign that is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50, help="random kills of each such run")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", nargs="*", choices=[run.name for run in runs(0, 1)])
    parser.add_argument("--routes", type=int, default=0, help="copy to so many queues by a column")
    parser.add_argument("--part", type=_part, default=(1, 1), help="such as 2/5")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(f"{asked.messages:,} messages, seed {asked.seed}")
    part, parts = asked.part
    chosen = [
        replace(run, deaths=run.deaths[part - 1 :: parts])
        for run in runs(asked.seed, asked.kills)
        if not asked.only or run.name in asked.only
    ]
    folder = Path(tempfile.mkdtemp(prefix="exactly-once-"))
    java_options = _rehearse(folder, console)
    summary = _table("All runs", "run", "deaths")
    failed = False
    for run in chosen:
        began = time.monotonic()
        lives = _run(run, folder / run.name, asked.messages, asked.routes, java_options, console)
        wrong = [each for life in lives for each in life.wrong]
        failed = failed or bool(wrong) or not all(life.counts.right for life in lives)
        batches = sum(life.batches for life in lives)
        seconds = time.monotonic() - began
        _row(summary, run.name, str(len(run.deaths)), batches, lives[-1].counts, seconds)
        console.print(*wrong, sep="\n", style="red", end="\n" if wrong else "")
    console.print(summary, f"seed {asked.seed}")
    if failed:
        console.print(f"NOT exactly once; all is kept in {folder}", style="bold red")
        return 1
    shutil.rmtree(folder)
    console.print("exactly once", style="bold green")
    return 0


def _part(text: str) -> tuple[int, int]:
    """Read the number of a part and of all parts."""
    part, parts = map(int, text.split("/"))
    if not 1 <= part <= parts:
        raise ValueError(text)
    return part, parts


def _rehearse(folder: Path, console: Console) -> str:
    """A copy without kills, whose JVM leaves its classes behind: the next ones start faster."""
    archive = folder / "classes.jsa"
    job = Job.of(scene := Scene(folder / "rehearsal", 20_000), limit=5_000)
    began = time.monotonic()
    [life] = live_through(
        scene, [], replace(job, java_options=f"-XX:ArchiveClassesAtExit={archive}")
    )
    assert not life.wrong, life
    console.print(f"rehearsal, without a death: {time.monotonic() - began:.0f} s")
    return f"-XX:SharedArchiveFile={archive}"


def _run(
    run: Run, folder: Path, messages: int, routes: int, java_options: str, console: Console
) -> list[Obituary]:
    scene: Scene | ReadScene
    job: Job | Reading
    if run.reads:
        scene = ReadScene(folder)
        job = scene.reading(READ_LIMIT, java_options=java_options)
        # Much is left to the last life.
        last = replace(job, limit=20 * READ_LIMIT)
    else:
        scene = Scene(folder, messages, routes)
        last = Job.of(scene, limit=messages // BATCHES_FOR_POINTS, java_options=java_options)
        job = replace(last, limit=messages // run.batches)
    table = _table(f"{run.name}: {job.limit:,} messages a batch", "death", "notes lost")
    lives = []
    with console.status(run.name) as status:
        for life in live_through(scene, run.deaths, job, last):
            lives.append(life)
            died = str(life.death or "none: until in is empty")
            _row(table, died, life.lost, life.batches, life.counts, life.seconds)
            status.update(f"{run.name}: {len(lives)} of {len(run.deaths) + 1}, last {died}")
    console.print(table)
    return lives


def _table(title: str, *names: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, no_wrap=True)
    for name in ("batches", *COUNTS, "seconds"):
        table.add_column(name, justify="right")
    return table


def _row(table: Table, name: str, more: str, batches: int, counts: Counts, seconds: float) -> None:
    table.add_row(
        name,
        more,
        str(batches),
        *(f"{getattr(counts, each):,}" for each in COUNTS),
        f"{seconds:.1f}",
        style=None if counts.right else "red",
    )


if __name__ == "__main__":
    sys.exit(main())
