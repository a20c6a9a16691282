"""Run one store for hours under a steady load, with restarts, and see what grows.

    python -m benchmarks.steady [--minutes 120] [--rate 200] [--postgresql] [--restart 10]

A process loads small batches, a second one handles each message in a pool that also runs the side
tasks, and a third one copies what it fires from queue to queue. Every *restart* minutes one of them
is killed and started again. Every ten seconds it samples the memory, the open files and the threads
of each process, the size of each table, the files of the storage, and how long messages waited.

Prints how much each of them grows in an hour, by a line through the second half of the run, and
draws all of them. Ends with 1 if a message is missing or was handled twice without a restart.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sqlalchemy import text

from benchmarks.arguments import add_catalog, address_in
from queue_core import ConsumerPool, Store
from queue_core.errors import IgnisError
from queue_core.values.address import Address
from tests.children import Child

SCHEMA = pa.schema([("number", pa.int64()), ("loaded", pa.float64()), ("customer", pa.string())])
SAMPLE_SECONDS = 10.0
BATCH_SECONDS = 0.1
#: Bytes of each table with its indexes; in SQLite, the pages of the file are all that is known.
_SIZES = (
    "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
)


def load(address: Address, folder: Path, rate: float) -> None:
    """Load numbered messages at a rate, until told to stop; after a restart, go on where it was."""
    place, each = folder / "loaded", max(int(rate * BATCH_SECONDS), 1)
    number = int(place.read_text()) if place.exists() else 0
    with Store(address, create=False) as store:
        queue, due = store.queue("in"), time.monotonic()
        while not (folder / "stop").exists():
            rows = [
                {"number": n, "loaded": time.monotonic(), "customer": f"c{n % 97}"}
                for n in range(number, number + each)
            ]
            with suppress(IgnisError):
                queue.load(rows)
                number += each
                # A process that is killed must not leave a part of it.
                (written := folder / "loading").write_text(str(number))
                written.replace(place)
            due = max(due + BATCH_SECONDS, time.monotonic() - 5)
            time.sleep(max(due - time.monotonic(), 0))


def copy(address: Address, folder: Path) -> None:
    """Copy messages from queue to queue: a pool whose handler returns them."""
    with (
        Store(address, create=False) as store,
        ConsumerPool(store, "in", dict, output="out", concurrency=2, batch=50),
    ):
        while not (folder / "stop").exists():
            time.sleep(0.1)


def handle(address: Address, folder: Path, life: int) -> None:
    """Handle messages, some of which fail once; note each number and how long it was on its way."""
    with (folder / f"handled-{life}.jsonl").open("a", buffering=1) as notes:

        def one(message: dict[str, object]) -> bool:
            if message["_attempt"] == 0 and int(str(message["number"])) % 500 == 0:
                return False
            took = time.monotonic() - float(str(message["loaded"]))
            notes.write(json.dumps([message["number"], round(time.monotonic(), 3), took]) + "\n")
            return True

        with (
            Store(address, create=False) as store,
            ConsumerPool(store, "out", one, concurrency=4, batch=20),
        ):
            while not (folder / "stop").exists():
                time.sleep(0.1)


ROLES = {"load": load, "copy": copy, "handle": handle}


class Run:
    """The processes of a run, and what was seen of them."""

    def __init__(self, address: Address, folder: Path, rate: float) -> None:
        self.address, self.folder, self.rate = address, folder, rate
        self.store = Store(address)
        settings = {"shards": 4, "retry": "Retry(attempts=5, backoff=constant('1s'))"}
        for name in ("in", "out"):
            self.store.create_queue(name, SCHEMA, **settings)
        self.lives: Counter[str] = Counter()
        self.children = {role: self._start(role) for role in ROLES}
        #: By what is measured: the seconds, and the figures then.
        self.seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.restarts: list[float] = []
        self._begun = time.monotonic()

    def _start(self, role: str) -> Child:
        self.lives[role] += 1
        more = {"load": (self.rate,), "handle": (self.lives[role],)}.get(role, ())
        log = self.folder / f"{role}-{self.lives[role]}.log"
        return Child(ROLES[role], self.address, self.folder, *more, log=log)

    def restart(self, role: str) -> None:
        """Kill a process, and start it again."""
        self.restarts.append(time.monotonic() - self._begun)
        self.children[role].kill()
        self.children[role] = self._start(role)

    def sample(self) -> None:
        """Look at everything once."""
        for role, child in self.children.items():
            if child.exit_code is not None:
                raise RuntimeError(f"the process {role} has ended: {child.output()[-2000:]}")
            process = psutil.Process(child.pid)
            life = f"{role} {self.lives[role]}"
            self._see(f"MB of {life}", process.memory_info().rss / 1e6)
            self._see(f"files of {role}", process.num_fds())
            self._see(f"threads of {role}", process.num_threads())
        catalog = self.store.catalog
        if catalog.file is not None:
            size = sum(each.stat().st_size for each in catalog.file.parent.glob("catalog.db*"))
            self._see("MB of the catalog's files", size / 1e6)
        else:
            with catalog.read() as connection:
                for name, size in connection.execute(text(_SIZES)):
                    self._see(f"MB of table {name}", size / 1e6)
        self._see("files of the storage", len(self.store.storage.list()))

    def _see(self, what: str, figure: float) -> None:
        self.seen[what].append((time.monotonic() - self._begun, figure))

    def handled(self) -> Iterator[tuple[int, float, float]]:
        """Yield the number, the time and the way of each message that was handled."""
        for file in sorted(self.folder.glob("handled-*.jsonl")):
            for line in file.read_text().splitlines():
                with suppress(json.JSONDecodeError):  # The last line of a killed process.
                    number, at, took = json.loads(line)
                    yield number, at - self._begun, took

    def finish(self) -> list[str]:
        """Handle what is left, stop everything, and return what is wrong."""
        self.children["load"].kill()
        end = time.monotonic() + 300
        view = self.store.view
        while time.monotonic() < end and any(
            row["waiting"] + row["in_flight"] + row["sidelined"]
            for row in view("queues").to_pylist()
        ):
            time.sleep(0.5)
        (self.folder / "stop").touch()
        for role in ("copy", "handle"):
            self.children[role].wait(60)
        loaded = int((self.folder / "loaded").read_text())
        counts = Counter(number for number, _, _ in self.handled())
        missing = [number for number in range(loaded) if number not in counts]
        wrong = [f"{len(missing)} messages were not handled: {missing[:5]}"] if missing else []
        if missing:
            names = ("queue", "waiting", "in_flight", "retrying", "dead")
            wrong += [
                str({name: row[name] for name in names}) for row in view("queues").to_pylist()
            ]
        # A killed handler had noted some that were not settled, and a killed loader loads again.
        again = sum(count - 1 for count in counts.values())
        if again > 100 * max(len(self.restarts), 1):
            wrong.append(f"{again} messages were handled again")
        return wrong + [str(row) for row in self.store.admin.fsck().to_pylist()]


def growth(points: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the middle figure of the second half, the last one, and the growth in an hour."""
    at, figures = np.array(points[len(points) // 2 :]).T
    slope = np.polyfit(at, figures, 1)[0] * 3600 if len(at) > 2 else 0.0
    return float(np.median(figures)), float(figures[-1]), float(slope)


def draw(run: Run, file: Path) -> None:
    """Draw all figures over time."""
    from matplotlib.figure import Figure

    kinds: dict[str, Callable[[str], bool]] = {
        "memory of processes, MB": lambda what: what.startswith("MB of") and "table" not in what,
        "tables, MB": lambda what: what.startswith("MB of table"),
        "files and threads": lambda what: what.startswith(("files", "threads")),
    }
    picture = Figure(figsize=(11, 13), layout="constrained")
    panels = picture.subplots(len(kinds) + 1, 1, sharex=True)
    for panel, (title, belongs) in zip(panels, kinds.items(), strict=False):
        chosen = {what: points for what, points in run.seen.items() if belongs(what)}
        largest = sorted(chosen, key=lambda what: -chosen[what][-1][1])[:12]
        for what in largest:
            at, figures = zip(*chosen[what], strict=True)
            panel.plot([each / 60 for each in at], figures, label=what, linewidth=1)
        panel.set_title(title, loc="left")
        if chosen:
            panel.legend(fontsize=6, loc="upper left", ncols=2)
    minutes: dict[int, list[float]] = defaultdict(list)
    for _, when, took in run.handled():
        minutes[int(when // 60)].append(took * 1000)
    for percent in (50, 99):
        marks = [(minute, np.percentile(each, percent)) for minute, each in sorted(minutes.items())]
        panels[-1].plot(*zip(*marks, strict=True), label=f"p{percent}", linewidth=1)
    panels[-1].set(yscale="log", xlabel="minutes")
    panels[-1].set_title("from load to handler over two queues, ms", loc="left")
    panels[-1].legend(fontsize=6)
    picture.savefig(file, dpi=90)


def main() -> int:
    """Run what the command line asks for; return 0 if nothing is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second")
    add_catalog(parser)
    parser.add_argument("--restart", type=float, default=10.0, help="minutes between two")
    parser.add_argument("--out", type=Path, default=Path("out"))
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ignis-steady-")))
        address = stack.enter_context(address_in(folder, asked))
        run = Run(address, folder, asked.rate)
        chance, next_one = random.Random(7), asked.restart * 60
        samples = int(asked.minutes * 60 / SAMPLE_SECONDS)
        for at in track(range(samples), console=console, description="sampling"):
            time.sleep(SAMPLE_SECONDS)
            run.sample()
            if (at + 1) * SAMPLE_SECONDS >= next_one:
                next_one += asked.restart * 60
                run.restart(chance.choice([*ROLES]))
        table = Table(
            "what", "middle", "at the end", "in an hour", title=f"{asked.minutes:g} minutes"
        )
        for what, points in sorted(run.seen.items()):
            if len(points) >= 6:
                table.add_row(what, *(f"{figure:,.2f}" for figure in growth(points)))
        wrong = run.finish()
        console.print(table)
        took = np.array([each for _, _, each in run.handled()]) * 1000
        console.print(
            f"{len(took):,} handled, {len(run.restarts)} restarts; from load to handler "
            f"p50 {np.percentile(took, 50):.0f} ms, p99 {np.percentile(took, 99):.0f} ms"
        )
        asked.out.mkdir(exist_ok=True)
        where = "postgres" if asked.postgresql or asked.catalog else "sqlite"
        draw(run, asked.out / f"steady-{where}.png")
        for each in wrong:
            console.print(each, style="red")
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
