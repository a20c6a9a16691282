"""Measure how exactly failed messages come back, and what waiting messages cost a firing.

    python -m benchmarks.retries [--messages 1000000] [--rounds 100] [--postgresql]

Times: a pool in a process of its own fails each message once. The lateness is the time of the
second firing minus the time at which the policy makes the message due, both by the catalog's clock.
In the second case, the process is killed by SIGKILL after the failures, and another one is started.
In the third, the clocks that Python shows to the worker are an hour ahead.

Cost: firing and deleting one message, by turns in a queue whose sideline is empty, and in a queue
of another catalog with waiting messages, each in a slice of its own, which is the worst case.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.peers.servers import Servers
from queue_core import ConsumerPool, Queue, Retry, Settlement, Store, constant
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.values.address import Address

SCHEMA = pa.schema([("number", pa.int64())])
WAIT, COUNT, AHEAD = 4.0, 200, 3600.0
#: How often the empty queue and the full one take turns.
TURNS = 6
#: Messages that are put off in one settlement.
STEP = 50_000


def work(address: Address, queue: str, log: str, ahead: float) -> None:
    """Run a pool in this process until it is killed; note each call."""
    if ahead:
        shift_clocks(ahead)
    store = Store(address)

    def handle(message: dict[str, Any]) -> bool:
        fired = int(message["_fired_at"].timestamp() * 1e6)
        row = [message["_message_id"], message["_attempt"], fired]
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, (json.dumps(row) + "\n").encode())
        os.close(file)
        if message["_attempt"] == 0:
            raise ConnectionResetError
        return True

    columns = ["_attempt", "_fired_at"]
    with ConsumerPool(store, queue, handle, concurrency=2, batch=10, columns=columns):
        signal.pause()


def shift_clocks(by: float) -> None:
    """Let Python's clocks of the day be ahead."""
    # Its extensions cannot be imported once the class of times is another one.
    import pandas  # noqa: F401

    real, real_ns = time.time, time.time_ns  # noqa: TID251 - it is what is replaced
    time.time = lambda: real() + by  # noqa: TID251
    time.time_ns = lambda: real_ns() + int(by * 1e9)

    class Ahead(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return super().now(tz) + datetime.timedelta(seconds=by)

    datetime.datetime = Ahead  # type: ignore[misc]


def lateness(store: Store, name: str, *, ahead: float = 0.0, kill: bool = False) -> list[float]:
    """Return by how many seconds each message came back later than the policy says."""
    queue = store.create_queue(name, SCHEMA, retry=Retry(backoff=constant(WAIT)))
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.touch()

        def start() -> multiprocessing.process.BaseProcess:
            given = (store.address, name, str(log), ahead)
            # It ends with this process, whatever happens.
            child = context.Process(target=work, args=given, daemon=True)
            child.start()
            return child

        def calls() -> list[list[int]]:
            return [json.loads(line) for line in log.read_text().splitlines()]

        child = start()
        for part in range(4):
            queue.load([{"number": n} for n in range(part * COUNT // 4, (part + 1) * COUNT // 4)])
            time.sleep(0.3)
        if kill:
            wait_for(lambda: queue.failures().num_rows == COUNT)
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
            child = start()
        wait_for(lambda: len(calls()) >= 2 * COUNT)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        fired = {message: at for message, attempt, at in calls() if attempt == 1}
    failures = queue.failures()
    failed = failures.column("failed_at").cast(pa.int64()).to_pylist()
    ids = failures.column("message_id").to_pylist()
    return [(fired[n] - at) / 1e6 - WAIT for n, at in zip(ids, failed, strict=True)]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + 120
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the messages did not come back")
        time.sleep(0.05)


def put_off(queue: Queue, count: int) -> None:
    """Load messages, and let each wait for a time of its own, far away."""
    for first in range(0, count, STEP):
        size = min(STEP, count - first)
        queue.load(pa.table({"number": np.arange(first, first + size)}))
        ids = queue.fire("all").ids
        delays = 86_400 + np.arange(first, first + size) % 3_000_000
        rows = {"_message_id": ids, "outcome": ["reload"] * size, "delay": delays.astype(float)}
        queue.settle(Settlement.of(pa.table(rows)))


def firing(queue: Queue, rounds: int) -> list[float]:
    """Return the milliseconds that firing and deleting one message takes."""
    times = []
    queue.load(pa.table({"number": np.arange(rounds)}))
    for _ in range(rounds):
        begin = time.perf_counter()
        queue.delete(queue.fire())
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--postgresql", action="store_true", help="on a server of its own")
    given = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder)) as servers:

        def opened(name: str) -> Store:
            where = f"{folder}/{name}"
            if given.postgresql:
                return Store.open(catalog=servers.catalog(name), storage=where)
            return Store.open(where)

        store = opened("waiting")
        times = Table("the worker", "messages", "median lateness", "worst")
        for name, how in {
            "runs": {},
            "is killed, and another one starts": {"kill": True},
            "has a clock an hour ahead": {"ahead": AHEAD},
        }.items():
            late = lateness(store, f"times-{len(times.rows)}", **how)  # type: ignore[arg-type]
            median, worst = statistics.median(late), max(late, key=abs)
            times.add_row(name, str(len(late)), f"{median:.3f} s", f"{worst:.3f} s")
        console.print(times)

        empty = opened("empty")
        cost = Table("waiting", "fire and delete, median", "p99", "search for due")
        compared = {empty: 0, store: given.messages}
        queues = {
            each: each.create_queue("cost", SCHEMA, shards=8, retry=Retry()) for each in compared
        }
        took: dict[Store, list[float]] = {each: [] for each in compared}
        put_off(queues[store], given.messages)
        for _ in range(TURNS):
            for each, queue in queues.items():
                firing(queue, 20)
                took[each] += firing(queue, given.rounds)
        for each, waiting in compared.items():
            times_ms = sorted(took[each])
            retries = Retries(each.catalog, each.storage)
            begin = time.perf_counter()
            for _ in range(20):
                retries.run(["cost"])
            search = (time.perf_counter() - begin) / 20 * 1e3
            cost.add_row(
                f"{waiting:,}",
                f"{statistics.median(times_ms):.2f} ms",
                f"{times_ms[int(len(times_ms) * 0.99)]:.2f} ms",
                f"{search:.2f} ms",
            )
        console.print(cost)
        empty.close()
        store.close()


if __name__ == "__main__":
    main()
