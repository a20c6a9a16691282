"""How costs grow with the size of messages: ``python -m benchmarks.growth [ROW ...]``.

A row measures one cost at several sizes, in CPU time, which depends little on other work of the
machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from queue_core import Store
from queue_core.model import ReadPlan, TicketRange
from queue_core.segments.reader import read as read_plan
from queue_core.selection.request import FireRequest
from queue_core.verbs.fire import fire as fire_verb
from queue_core.verbs.read_tickets import read_tickets

ROUNDS = 3


def _peak() -> float:
    """Return the peak memory of this process in MB; unlike ru_maxrss, without its parent's."""
    (line,) = (n for n in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in n)
    return int(line.split()[1]) / 1024


def read() -> None:
    """Read 500 MB of large messages, beside a bare Arrow file of the same rows."""
    for size in (1_000, 100_000, 1_000_000, 10_000_000):
        with tempfile.TemporaryDirectory(prefix="ignis-growth-", dir=".") as folder:
            _fill(folder, size)
            (ours, bare, ratio), (high,), (low,) = (
                _read_in_process(which, folder) for which in ("both", "ignis", "bare")
            )
            print(
                f"{'read 500 MB, bytes of a message':36} {size:>9,} {ours:.3f} s, bare {bare:.3f} s"
                f" ({ratio:.2f}), peak {high:.0f} MB, bare {low:.0f} MB",
                flush=True,
            )


def _read_in_process(which: str, folder: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.growth", "--reader", which, folder]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(figure) for figure in printed.split()]


_WHOLE = 500_000_000


def _fill(folder: str, size: int) -> None:
    schema = pa.schema([("payload", pa.binary())])
    some = np.random.default_rng(1).bytes(size)
    at_once = max(20_000_000 // size, 1)
    with (
        Store.open(folder) as store,
        pa.OSFile(f"{folder}/bare.arrow", "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        queue = store.create_queue("large", schema, shards=1, message_expiry=None)
        for _ in range(_WHOLE // (at_once * size)):
            rows = pa.table([pa.array([some] * at_once, pa.binary())], schema=schema)
            queue.load(rows)
            writer.write_table(rows, max_chunksize=max((4 << 20) // size, 1))
        wanted = FireRequest(queue_ids=(queue.info.id,))
        fire_verb(store.catalog, store.consumer("reader"), wanted)


def _reader(which: str, folder: str) -> None:
    """Print the peak memory of reading in MB; of both in turns, the CPU seconds and their ratio."""
    reading = {"bare": _bare, "ignis": _ignis}

    def timed(name: str) -> float:
        begun = time.process_time()
        total = sum(batch.nbytes for batch in reading[name](folder))
        assert total >= _WHOLE * 0.98, total
        return time.process_time() - begun

    if which in reading:
        timed(which)
        print(_peak())
        return
    # The first readings also import and warm up.
    times = [(timed("ignis"), timed("bare")) for _ in range(1 + 4 * ROUNDS)][1:]
    ours, bare = zip(*times, strict=True)
    ratio = statistics.median(ours[at] / bare[at] for at in range(len(times)))
    print(statistics.median(ours), statistics.median(bare), ratio)


def _bare(folder: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(f"{folder}/bare.arrow") as source, pa.ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _ignis(folder: str) -> Iterator[pa.RecordBatch]:
    return read_plan(_plan(folder), ["payload"])


@cache
def _plan(folder: str) -> ReadPlan:
    with Store.open(folder) as store:
        queue, consumer = store.queue("large"), store.consumer("reader")
        tickets = TicketRange(consumer.id, 0, 1)
        return read_tickets(store.catalog, store.storage.uri, [queue.info], tickets)


ROWS = {"read": read}


def main() -> None:
    """Measure the rows that were asked for."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("rows", nargs="*", choices=[[], *ROWS])
    arguments.add_argument("--reader", nargs=2, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.reader:
        _reader(*given.reader)
        return
    for name in given.rows or ROWS:
        ROWS[name]()


if __name__ == "__main__":
    main()
