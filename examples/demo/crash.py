"""The second run: its driver is killed half-way, and restarted from the same checkpoints.

    flights ──copy──▶ copies ──handle──▶ noted, or sideline: never departed

A separate process runs both queries; SIGKILL ends it and every process that it has started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from examples.demo.queries import copy, finish
from examples.demo.samples import Sample, Sampler
from examples.demo.session import quiet_spark
from examples.demo.work import ONCE, noted, noting_flights
from pyspark_ignis import consume
from queue_core import IgnisError, Store

#: Micro-batches per query, by default.
BATCHES = 16
#: Share of the flights that are settled when the driver is killed.
KILL_AT = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The result of the second run."""

    #: The queue when its driver had died, and at the end.
    killed: Sample
    ended: Sample
    #: Number of killed processes.
    processes: int
    #: Flights that never reached the handler, and flights that did as several messages.
    lost: int
    doubled: int
    #: Messages that the handler saw more than once, because the crash interrupted their batch.
    seen_again: int
    #: The numbers of the flights in the sideline, in order.
    sidelined: list[int]
    #: Number of recorded failures.
    failures: int


def crash(
    flights: pa.Table, store: Path, show: Callable[[Sample], None], *, batches: int = BATCHES
) -> Crash:
    """Run in the folder *store*, kill the driver, run to the end, and return the result."""
    opened = Store.open(store)
    opened.create_queue("flights", flights.schema, key="carrier").load(flights)
    copies = opened.create_queue("copies", flights.schema, key="carrier", retry=ONCE)
    with Sampler(copies, show) as sampler:
        limit = -(-flights.num_rows // batches)
        driver = _start(store, limit)
        while not _half_way(store, sampler.take(), flights.num_rows):
            if driver.poll() is not None:
                raise _failed(store, "ended before it could be killed")
            time.sleep(0.02)
        processes = kill_session(driver.pid)
        driver.wait()
        killed = sampler.take()
        if _start(store, limit).wait() != 0:
            raise _failed(store, "failed when it was started again")
    seen, times = np.unique(noted(store), axis=0, return_counts=True)
    _, messages = np.unique(seen[:, 1], return_counts=True)
    return Crash(
        killed=killed,
        ended=sampler.samples[-1],
        processes=processes,
        lost=flights.num_rows - len(messages),
        doubled=int((messages > 1).sum()),
        seen_again=int((times > 1).sum()),
        sidelined=sorted(copies.browse(magazine="sideline")["number"].to_pylist()),
        failures=copies.failures().num_rows,
    )


def drive(store: Path, limit: int) -> None:
    """Run both queries until nothing is left; the killed process does this."""
    with quiet_spark(store / "spark.log") as spark:
        copying = copy(spark, store, limit)
        handling = consume(
            spark,
            "copies",
            noting_flights(str(store)),
            path=store,
            checkpoint=store / "checkpoints" / "handle",
            columns=["number", "dep_time", "tailnum", "origin"],
            max_messages=limit,
            numPartitions=2,
        )
        copying.awaitTermination()
        finish(handling)


def _start(store: Path, limit: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "examples.demo.crash", str(store), str(limit)]
    with (store / "driver.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _half_way(store: Path, sample: Sample, total: int) -> bool:
    """Return whether enough is settled and the handler is in the middle of a batch."""
    return sample.settled >= KILL_AT * total and len(noted(store)) > sample.settled


def kill_session(leader: int) -> int:
    """
    Kill every process of the session of *leader* with SIGKILL; return their number.

    A Spark driver's Java and workers are in several process groups.
    """
    killed: set[int] = set()
    while alive := {each for each in _processes() if _session(each) == leader} - killed:
        for process in alive:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        killed |= alive
        # Java may have started another worker meanwhile.
        time.sleep(0.05)
    return len(killed)


def _processes() -> list[int]:
    if Path("/proc/self").exists():
        names = [entry.name for entry in Path("/proc").iterdir()]
    else:
        # macOS has no /proc.
        listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True)
        names = listed.stdout.split()
    return [int(name) for name in names if name.isdigit()]


def _session(process: int) -> int | None:
    try:
        return os.getsid(process)
    except OSError:
        return None


def _failed(store: Path, problem: str) -> IgnisError:
    return IgnisError(f"the driver {problem}; see {store / 'driver.log'}")


if __name__ == "__main__":
    drive(Path(sys.argv[1]), int(sys.argv[2]))
