"""Measure how long a short query takes, and a query of a bare source with the same rows.

    python -m benchmarks.startup [--messages 1000] [--rounds 10] [--imports]

Each round runs two queries to their end, with Trigger.AvailableNow in one Spark session. One reads
rows of a file by a bare Python source; the other fires as many messages from a queue. The benchmark
measures the time from `start()` to the end of the query. Two more rounds come first, which start
Spark's workers and are not counted. It also measures the import of each module that a Spark process
starts with; with `--imports`, nothing else.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from benchmarks.bare import BareSource
from benchmarks.session import local_session
from queue_core import Store

SCHEMA = pa.schema([("number", pa.int64())])
#: The modules that the processes of a query import: driver, executors, and both sides of a sink.
MODULES = (
    "pyspark.sql.datasource",
    "pyspark_ignis.source",
    "ignis_source.stream",
    "ignis_source.acquiring, ignis_source.session",
    "ignis_sink.load",
    "ignis_sink.publishing",
)


class Contest:
    """Runs both queries in one Spark session and one folder."""

    def __init__(self, folder: Path, messages: int) -> None:
        self._folder = folder
        self._rows = pa.table({"number": range(messages)}, schema=SCHEMA)
        self._spark = local_session("startup")
        self._spark.dataSource.register(BareSource)
        self._runs = 0

    def bare(self) -> float:
        """Return the seconds that a query of the bare source takes."""
        path = self._folder / f"files-{self._runs}"
        path.mkdir()
        with pa.ipc.new_file(str(path / "rows.arrow"), SCHEMA) as writer:
            writer.write_table(self._rows)
        return self._run(self._spark.readStream.format("bare").option("path", str(path)))

    def queue(self) -> float:
        """Return the seconds that a query of a new queue takes."""
        path = str(self._folder / f"store-{self._runs}")
        with Store.open(path) as store:
            store.create_queue("q", SCHEMA).load(self._rows)
        reader = self._spark.readStream.format("ignis").option("includeMetadata", "false")
        return self._run(reader.option("queue", "q").option("path", path))

    def _run(self, reader: Any) -> float:
        self._runs += 1
        rows: DataFrame = reader.load()
        checkpoint = self._folder / f"checkpoint-{self._runs}"
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        start = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - start
        read = sum(progress.numInputRows for progress in query.recentProgress)
        if read != self._rows.num_rows:
            raise RuntimeError(f"{read} rows of {self._rows.num_rows} were read")
        shutil.rmtree(checkpoint)
        return seconds


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--imports", action="store_true")
    given = arguments.parse_args()
    # As in an installation, where modules are compiled once: a process does not compile them again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    console = Console()
    console.print(_imports(given.rounds))
    if given.imports:
        return
    with tempfile.TemporaryDirectory(prefix="ignis-startup-") as name:
        contest = Contest(Path(name), given.messages)
        rounds = [(contest.bare(), contest.queue()) for _ in range(given.rounds + 2)][2:]
    table = Table(title=f"start() to the end of a query over {given.messages} messages")
    table.add_column("source")
    table.add_column("median s", justify="right")
    table.add_column("best to worst s", justify="right")
    bare, queue = ([*seconds] for seconds in zip(*rounds, strict=True))
    more = [queue - bare for bare, queue in rounds]
    for label, seconds in (("bare", bare), ("queue", queue), ("more than bare", more)):
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        table.add_row(label, f"{statistics.median(seconds):.2f}", spread)
    console.print(table)


def _imports(rounds: int) -> Table:
    """Return the CPU seconds of each import in a fresh process."""
    seconds: dict[str, list[float]] = {module: [] for module in MODULES}
    for _ in range(rounds):
        for module, measured in seconds.items():
            begun = _children()
            subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
            measured.append(_children() - begun)
    table = Table(title="imports in a fresh process")
    table.add_column("module")
    table.add_column("median CPU s", justify="right")
    for module, measured in seconds.items():
        table.add_row(module, f"{statistics.median(measured):.2f}")
    return table


def _children() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    main()
