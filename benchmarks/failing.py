"""What traces of failures and their log cost a pool: CPU time per message, with and without.

    python benchmarks/failing.py [--messages 20000] [--rounds 9] [--catalog postgresql+psycopg://…
                                  --storage DIR]

Each failure has an id in its text. The rounds with and without follow one another in turn, and the
medians are compared. It fails above 2%.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from queue_core import ConsumerPool, Retry, Store, batch_handler
from queue_core.handling.failure_log import FailureLog
from queue_core.handling.traces import Tracer
from queue_core.values.address import Address

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
MOST = 0.02


def failing(message: dict[str, Any]) -> bool:
    """Fail, as a handler with a helper does."""
    return _look_up(message["number"])


def _look_up(number: int) -> bool:
    raise LookupError(f"mailbox of c{number} does not exist in region {number % 7}")


def accepting(_: dict[str, Any]) -> bool:
    """Mark a message as done."""
    return True


@batch_handler
def failing_batch(batch: pa.RecordBatch) -> pa.Array:
    """Fail, for all messages of a batch."""
    raise LookupError(f"batch of {batch.column('number')[0]} cannot be written")


HANDLERS = {
    "all fail": failing,
    "all batches fail": failing_batch,
    "none fails": accepting,
}


def _nothing(*_: object) -> None:
    """Be quicker than a mock."""


@contextmanager
def without() -> Iterator[None]:
    """Make no traces and log no failures."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Tracer, "trace_of", _nothing))
        stack.enter_context(mock.patch.object(FailureLog, "note", _nothing))
        yield


def cost(store: Store, handler: Callable[..., Any], messages: int) -> float:
    """Return the CPU microseconds per message of a pool."""
    name = f"failing-{time.monotonic_ns()}"
    queue = store.create_queue(name, SCHEMA, retry=Retry(attempts=1))
    queue.load(pa.table({"number": range(messages), "text": ["x" * 100] * messages}, SCHEMA))
    began = time.process_time()
    with ConsumerPool(store, name, handler, concurrency=2) as pool:
        if not pool.drain(600) or sum(pool.counts.values()) != messages:
            raise RuntimeError(f"{pool!r} did not handle all: {pool.counts}")
    spent = time.process_time() - began
    queue.admin.deactivate()
    queue.admin.drop()
    return spent / messages * 1e6


def main() -> int:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=20_000)
    arguments.add_argument("--rounds", type=int, default=9)
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
            for name, handler in HANDLERS.items():
                pairs = []
                for number in range(given.rounds + 1):
                    spent = {}
                    # Whichever comes first has a colder machine.
                    for kept in (number % 2 == 0, number % 2 == 1):
                        with nullcontext() if kept else without():
                            spent[kept] = cost(store, handler, given.messages)
                    if number:
                        pairs.append((spent[True], spent[False]))
                ratio = statistics.median(one / other for one, other in pairs) - 1
                both = " and ".join(
                    f"{statistics.median(each):.1f}" for each in zip(*pairs, strict=True)
                )
                print(f"{name}: {both} µs of CPU per message with and without, {ratio:+.1%}")
                worst = max(worst, ratio)
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
