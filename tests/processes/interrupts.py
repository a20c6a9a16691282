"""
Interrupt calls at random moments, as Ctrl-C does: ``python -m tests.processes.interrupts``.

After each interrupt, another store loads a message, which waits for 10 seconds at most: no lock may
be left. As a notebook does, this keeps the error of the last interrupt, with all frames of the
call. Ends with an error if a store was locked out, or if a message was lost or doubled.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from queue_core import CatalogUnavailable, Store
from queue_core.catalog.databases.interface import Dialect
from queue_core.values.address import Address
from tests.children import PATIENCE, Child, Journal

SCHEMA = pa.schema([("number", pa.int64())])
#: Most calls take less, so that they are interrupted at any moment, or not at all.
CALL_SECONDS = 0.05
#: Far longer than another store waits where no lock is left.
BUSY_SECONDS = 10.0
#: Counts that must be 0.
BAD = ("locked out", "lost", "doubled", "resurrected", "findings")


class Calls:
    """Calls of one store that are interrupted, and what is known of its messages."""

    def __init__(self, address: Address, seed: int) -> None:
        self._rng = random.Random(seed)
        self._queue = Store(address).create_queue("orders", SCHEMA, shards=2)
        self._other = Store(address).create_queue("other", SCHEMA)
        self._number = 0
        #: The messages of the calls that have returned, and of those that were interrupted.
        self.loaded: set[int] = set()
        self.deleted: set[int] = set()
        self.unsure: set[int] = set()
        self.counts: Counter[str] = Counter()
        #: Keeps the frames of the last call that was interrupted.
        self._last: BaseException | None = None

    def interrupt(self, times: int) -> None:
        """Make calls until that many are interrupted."""
        while self.counts["interrupts"] < times:
            call = self._rng.choice((self._load, self._handle))
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            try:
                with _interrupted(self._rng.uniform(0, CALL_SECONDS)):
                    call()
            except KeyboardInterrupt as error:
                self._last = error
                self.counts["interrupts"] += 1
                self._check_free()
        faulthandler.cancel_dump_traceback_later()

    def _load(self) -> None:
        numbers = range(self._number, self._number + 3)
        self._number += 3
        self.unsure.update(numbers)
        self._queue.load([{"number": number} for number in numbers])
        self.loaded.update(numbers)
        self.unsure.difference_update(numbers)

    def _handle(self) -> None:
        firing = self._queue.fire(2)
        numbers = set(firing.messages.column("number").to_pylist())
        self.unsure.update(numbers)
        self._queue.delete(firing)
        self.deleted.update(numbers)
        self.unsure.difference_update(numbers)

    def _check_free(self) -> None:
        try:
            self._other.load([{"number": 0}])
        except CatalogUnavailable as error:
            self.counts["locked out"] += 1
            print(f"after {self.counts['interrupts']} interrupts: {error}", flush=True)
            # So that the next one shows whether it has kept a lock too.
            self._last = None
            gc.collect()

    def check(self, store: Store) -> None:
        """Compare the messages that are there with what the calls have returned."""
        there = Counter(store.queue("orders").browse().column("number").to_pylist())
        sure = self.loaded - self.deleted - self.unsure
        self.counts["loaded"] = len(self.loaded)
        self.counts["deleted"] = len(self.deleted)
        self.counts["lost"] = len(sure - there.keys())
        self.counts["doubled"] = sum(there.values()) - len(there)
        self.counts["resurrected"] = len(self.deleted & there.keys())
        self.counts["findings"] = store.admin.fsck(deep=True).num_rows


@contextmanager
def _interrupted(seconds: float) -> Iterator[None]:
    """Interrupt the main thread after some seconds, unless the block has ended by then."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _play(address: Address, times: int, seed: int, folder: Path) -> None:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    Dialect.busy_seconds = BUSY_SECONDS
    calls = Calls(address, seed)
    calls.interrupt(times)
    with Store(address) as store:
        calls.check(store)
    Journal(folder / "counts").write("counts", **calls.counts)


def play(address: Address, times: int, seed: int, folder: Path) -> Counter[str]:
    """Interrupt calls in the main thread of a process of their own; return the counts."""
    child = Child(_play, address, times, seed, folder, log=folder / "log")
    # Each interrupt may cost a wait for a lock.
    assert child.wait(PATIENCE + times * BUSY_SECONDS) == 0, child.output()
    (entry,) = Journal(folder / "counts").read()
    del entry["what"]
    return Counter(entry)


def main() -> int:
    """Interrupt calls of an embedded store, and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.processes.interrupts")
    parser.add_argument("--interrupts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ignis-interrupts-") as made:
        folder = Path(made)
        counts = play(Address.of(folder / "store"), given.interrupts, given.seed, folder)
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    return 1 if any(counts[name] for name in BAD) else 0


if __name__ == "__main__":
    raise SystemExit(main())
