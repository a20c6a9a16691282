"""What traces of failures and their log cost a pool: CPU time per message, with and without.

    python benchmarks/failing.py [--seconds 120] [--catalog postgresql+psycopg://… --storage DIR]

Each failure has an id in its text. While one pool runs, both are switched on and off each second,
so that whatever else the machine does meets both alike. It prints the ratio of the sums, and how
far by chance it may be off (two standard errors, by a bootstrap over pairs of slices). A pool in
which nothing fails shows what the figure is worth. It fails above 2%.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from queue_core import ConsumerPool, Retry, Store, batch_handler
from queue_core.handling.failure_log import FailureLog
from queue_core.handling.traces import Tracer
from queue_core.values.address import Address

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
MOST = 0.02
SLICE_SECONDS = 1.0
#: Messages loaded at once, while fewer than twice as many wait.
LOADED = 50_000
#: The parts that are switched off, and where they are.
PARTS = ((Tracer, "trace_of"), (FailureLog, "note"))


class Handlers:
    """Handlers that count the messages they were called with."""

    def __init__(self) -> None:
        self.handled = 0

    def failing(self, message: dict[str, Any]) -> bool:
        """Fail, as a handler with a helper does."""
        self.handled += 1
        return _look_up(message["number"])

    def failing_batch(self, batch: pa.RecordBatch) -> pa.Array:
        """Fail, for all messages of a batch."""
        self.handled += len(batch)
        raise LookupError(f"batch of {batch.column('number')[0]} cannot be written")

    def accepting(self, _: dict[str, Any]) -> bool:
        """Mark a message as done."""
        self.handled += 1
        return True


def _look_up(number: int) -> bool:
    raise LookupError(f"mailbox of c{number} does not exist in region {number % 7}")


def _nothing(*_: object) -> None:
    """Stand for a part that is switched off."""


def cost(store: Store, kind: str, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Return CPU seconds and messages, by pair of slices, without and with traces and log."""
    name = f"failing-{time.monotonic_ns()}"
    queue = store.create_queue(name, SCHEMA, retry=Retry(attempts=1))
    rows = pa.table({"number": range(LOADED), "text": ["x" * 100] * LOADED}, SCHEMA)
    handlers = Handlers()
    handler: Callable[..., Any] = getattr(handlers, kind)
    if kind == "failing_batch":
        handler = batch_handler(handler)
    kept = [getattr(*part) for part in PARTS]
    spent: list[tuple[float, float]] = []
    done: list[tuple[int, int]] = []
    loaded = 0
    with ConsumerPool(store, name, handler, concurrency=2, tasks=[]):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            while loaded - handlers.handled < LOADED * 2:
                queue.load(rows)
                loaded += LOADED
            pair = {}
            # Whichever comes first takes turns, and the load before it is in neither.
            for on in (len(spent) % 2 == 0, len(spent) % 2 == 1):
                for (owner, part), original in zip(PARTS, kept, strict=True):
                    setattr(owner, part, original if on else _nothing)
                before = time.process_time(), handlers.handled
                time.sleep(SLICE_SECONDS)
                pair[on] = time.process_time() - before[0], handlers.handled - before[1]
            spent.append((pair[False][0], pair[True][0]))
            done.append((pair[False][1], pair[True][1]))
    for (owner, part), original in zip(PARTS, kept, strict=True):
        setattr(owner, part, original)
    queue.admin.deactivate()
    queue.admin.drop()
    return np.array(spent), np.array(done)


def ratio_of(spent: np.ndarray, done: np.ndarray) -> tuple[np.ndarray, float]:
    """Return microseconds per message without and with, and two standard errors of their ratio."""
    chance = np.random.default_rng(7)
    drawn = chance.integers(0, len(spent), (1000, len(spent)))
    each = spent[drawn].sum(axis=1) / done[drawn].sum(axis=1)
    whole = spent.sum(axis=0) / done.sum(axis=0) * 1e6
    return whole, 2 * float(np.std(each[:, 1] / each[:, 0]))


def main() -> int:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=120.0, help="for each of three pools")
    arguments.add_argument("--catalog")
    arguments.add_argument("--storage")
    given = arguments.parse_args()
    logging.basicConfig(filename="/dev/null")
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="ignis-failing-") as folder:
        if given.catalog:
            address = Address.of(catalog=given.catalog, storage=given.storage)
        else:
            address = Address.of(Path(folder) / "store")
        with Store(address) as store:
            for kind in ("failing", "failing_batch", "accepting"):
                (without, traced), error = ratio_of(*cost(store, kind, given.seconds))
                print(
                    f"{kind}: {without:.2f} µs of CPU per message without and {traced:.2f} with, "
                    f"{traced / without - 1:+.1%} ± {error:.1%}",
                    flush=True,
                )
                worst = max(worst, traced / without - 1)
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
