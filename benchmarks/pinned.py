"""Load and fire for long beside a transaction that stays open, as reports and backups have them.

    python -m benchmarks.pinned [--minutes 60] [--rate 1000] [--peer "ignis, PostgreSQL"]

An open REPEATABLE READ transaction keeps PostgreSQL from removing any row that is deleted or
changed after it began, so that whoever looks for the next message steps over more and more of them.
For each peer in turn, a process sends messages at a steady rate, and another one takes and finishes
up to 100 at once. Prints by minute how long a message took from the time when it was due until it
was taken, how long it took to take some, and how many dead rows and bytes the database has; draws
them with --out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.peers.contenders.ignis import IgnisPostgres
from benchmarks.peers.contenders.pgmq import Pgmq
from benchmarks.peers.contenders.skip_locked import SkipLocked
from benchmarks.peers.figures import latencies
from benchmarks.peers.peer import Peer
from benchmarks.peers.servers import Servers
from benchmarks.peers.workloads.steady import DUE, produce

_BATCH = 100
_COUNT = """
SELECT coalesce(sum(n_dead_tup), 0)::bigint, pg_database_size(current_database())
FROM pg_stat_user_tables
"""


@dataclass(slots=True)
class Minute:
    """What was measured in a minute."""

    #: Seconds from the time when a message was due until it was taken.
    waits: list[float] = field(default_factory=list)
    #: Seconds that each call took that got messages at once.
    takes: list[float] = field(default_factory=list)
    dead: int = 0
    bytes: int = 0


@contextmanager
def pinned(url: str) -> Iterator[None]:
    """Keep a transaction open that needs the rows of now."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM pg_class")
        yield


def measure(peer: Peer, rate: int, minutes: int, progress: Progress) -> list[Minute]:
    """Run one peer beside an open transaction."""
    client = peer.connect()
    url = peer.address.partition("|")[0].replace("postgresql+psycopg", "postgresql")
    total, found = 60 * rate * minutes, [Minute()]
    task = progress.add_task(peer.name, total=total)
    with pinned(url), psycopg.connect(url, autocommit=True) as observer:
        process = multiprocessing.get_context("spawn").Process(
            target=produce,
            args=(peer.client, peer.address, client.queue, total, rate),
            daemon=True,
        )
        process.start()
        taken, ends = 0, None
        while taken < total:
            begun = time.monotonic()
            bodies = client.consume(_BATCH, 5.0)
            now = time.monotonic()
            if not bodies:
                if not process.is_alive():
                    raise RuntimeError(f"{peer.name}: {total - taken:,} messages did not arrive")
                continue
            client.acknowledge([])
            taken += len(bodies)
            ends = ends or now + 60.0
            due = [DUE.unpack_from(body)[0] for body in bodies]
            found[-1].waits += [now - each for each in due]
            if begun > due[0]:
                found[-1].takes.append(now - begun)
            progress.update(task, completed=taken)
            if now >= ends or taken == total:
                found[-1].dead, found[-1].bytes = observer.execute(_COUNT).fetchone() or (0, 0)
                ends += 60.0
                found.append(Minute())
        process.join()
    client.close()
    return [minute for minute in found if minute.takes]


def told(name: str, minutes: Sequence[Minute]) -> Table:
    """Return the figures of a peer, the last minute also as times of the first."""
    table = Table(title=name)
    columns = ("minute", "to the consumer p50", "p99 ms", "a take p50", "p99 ms", "dead rows", "MB")
    for column in columns:
        table.add_column(column, justify="right")
    shown: list[tuple[float, ...]] = []
    for at, minute in enumerate(minutes, 1):
        waits, takes = latencies(minute.waits), latencies(minute.takes)
        figures = (waits[0], waits[1], takes[0], takes[1], minute.dead, minute.bytes / 1e6)
        shown.append(figures)
        if at <= 3 or at == len(minutes) or at % max(len(minutes) // 10, 1) == 0:
            table.add_row(
                str(at),
                *(f"{each:,.1f}" for each in figures[:4]),
                f"{figures[4]:,}",
                f"{figures[5]:,.0f}",
            )
    # The first minute has the start of all processes.
    first = shown[min(1, len(shown) - 1)]
    ratios = [last / begin if begin else 0.0 for last, begin in zip(shown[-1], first, strict=True)]
    table.add_row("last / second", *(f"{ratio:.2f}" for ratio in ratios))
    return table


def draw(path: Path, found: dict[str, list[Minute]]) -> None:
    """Draw p99 of a take and the dead rows by minute."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, minutes in found.items():
        at = range(1, len(minutes) + 1)
        left.plot(at, [latencies(minute.takes)[1] for minute in minutes], label=name)
        right.plot(at, [minute.dead for minute in minutes], label=name)
    left.set(title="p99 of taking messages, ms", xlabel="minute", yscale="log")
    right.set(title="dead rows", xlabel="minute")
    left.legend()
    figure.savefig(path)


def main() -> None:
    """Measure the peers, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--peer", help="one peer only, by its name")
    parser.add_argument("--out", type=Path, help="a picture")
    given = parser.parse_args()
    peers: list[Any] = [IgnisPostgres(), SkipLocked(), Pgmq()]
    console, found = Console(), {}
    with (
        tempfile.TemporaryDirectory(prefix="ignis-pinned-") as name,
        Servers(Path(name)) as servers,
        Progress(console=console) as progress,
    ):
        for peer in peers:
            if given.peer in (None, peer.name):
                peer.start(servers)
                found[peer.name] = measure(peer, given.rate, given.minutes, progress)
                console.print(told(peer.name, found[peer.name]))
    if given.out is not None:
        draw(given.out, found)


if __name__ == "__main__":
    main()
