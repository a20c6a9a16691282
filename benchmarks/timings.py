"""What it costs a pool to measure how long messages wait and handlers take.

Rounds with and without the measurement alternate, and the median of the ratios counts. Messages
per second of processor time, and not of the clock, since other processes use the machine too. Run
it: python benchmarks/timings.py [rounds] [messages]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from unittest import mock

import pyarrow as pa

from queue_core import ConsumerPool, Store, batch_handler
from queue_core.catalog.records.timings import Timings

SCHEMA = pa.schema([("n", pa.int64())])


@batch_handler
def batches(batch: pa.RecordBatch) -> list[bool]:
    """Finish all messages of a batch."""
    return [True] * batch.num_rows


def single(_: dict[str, int]) -> bool:
    """Finish a message."""
    return True


def rate(store: Store, name: str, handler: object, messages: int) -> float:
    """Return the messages that a pool handles in a second of processor time, from a full queue."""
    queue = store.create_queue(name, SCHEMA)
    queue.load(pa.table({"n": range(messages)}))
    began = time.process_time()
    with ConsumerPool(store, name, handler, concurrency=2, batch=100, tasks=()) as pool:
        pool.drain()
    return messages / (time.process_time() - began)


def without(store: Store, name: str, handler: object, messages: int) -> float:
    """Return the same without the measurement."""
    nothing = mock.Mock(return_value=None)
    with mock.patch.object(Timings, "add", nothing), mock.patch.object(Timings, "flush", nothing):
        return rate(store, name, handler, messages)


def main(rounds: int, messages: int) -> None:
    """Print the rates of both, and the median of their ratios."""
    for title, handler in (("single", single), ("batches of 100", batches)):
        with tempfile.TemporaryDirectory() as folder, Store.open(folder) as store:
            rate(store, "warm", handler, messages)
            ratios, rates = [], []
            for each in range(rounds):
                pair = [without, rate][:: 1 if each % 2 else -1]
                found = {f: f(store, f"{f.__name__}{each}", handler, messages) for f in pair}
                ratios.append(found[rate] / found[without])
                rates.append(found[rate])
            middle = statistics.median(rates)
            spread = statistics.quantiles(ratios, n=4)
            print(
                f"{title}: {middle:,.0f}/s, {statistics.median(ratios):.4f} of the rate without "
                f"measurement (quartiles {spread[0]:.3f} to {spread[2]:.3f}, {rounds} rounds)"
            )


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*(given + [20, 20_000][len(given) :]))
