"""Measure how compaction helps messages that are loaded one by one.

python -m benchmarks.compaction [--messages 100000] [--shards 8]

Many single loads are published in one transaction, since only the later steps are measured.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from queue_core import Queue, Store
from queue_core.segments.reader import read_table
from queue_core.segments.stager import Stager
from queue_core.selection.request import FireRequest
from queue_core.values.model import Staged, TicketRange
from queue_core.verbs.fire import fire
from queue_core.verbs.read_tickets import read_tickets
from queue_core.waiting.publish import Routed, RoutedLoad

SCHEMA = pa.schema([("key", pa.string()), ("payload", pa.binary())])
#: Loads in one transaction.
TOGETHER = 5_000

Result = TypeVar("Result")


class Life:
    """A queue of single messages, and the seconds that each step of their life takes."""

    def __init__(self, store: Store, queue: Queue) -> None:
        self._store = store
        self._queue = queue
        self.seconds: dict[str, float] = {}

    def load(self, messages: int) -> None:
        """Load segments of one message."""
        for start in range(0, messages, TOGETHER):
            staged: list[Staged] = []
            for number in range(start, min(start + TOGETHER, messages)):
                row = {"key": f"k{number}", "payload": b"x" * 100}
                stager = Stager(self._store.storage, self._queue.info, as_is=True)
                stager.add(pa.RecordBatch.from_pylist([row], schema=SCHEMA))
                shard = number % self._queue.info.shards
                staged.extend(segment.in_shard(shard) for segment in stager.finish())
            loads = [Routed(self._queue.info, staged)]
            RoutedLoad(self._store.catalog, self._store.storage, loads).run()

    def compact(self) -> None:
        """Compact until there is nothing left to do."""
        self._timed("compact", self._queue.admin.compact)

    @property
    def slices(self) -> int:
        """Return the number of slices."""
        return int(self._store.view("slices", self._queue.name).num_rows)

    def handle(self) -> int:
        """Fire, read and delete all messages; return their number."""
        store, queue, done = self._store, self._queue, 0
        who, wanted = store.consumer("benchmark"), FireRequest(queue_ids=(queue.info.id,))
        firing = partial(fire, store.catalog, who, wanted)
        while ticket := self._timed("fire", firing).ticket:
            uri = store.storage.uri
            plan = partial(read_tickets, store.catalog, uri, [queue.info], TicketRange.of(ticket))
            messages = self._timed("read", partial(read_table, self._timed("plan", plan)))
            ids = messages.column("_message_id")
            done += self._timed("delete", partial(queue.delete, ids))
        return done

    def _timed(self, label: str, work: Callable[[], Result]) -> Result:
        begin = time.perf_counter()
        result = work()
        self.seconds[label] = self.seconds.get(label, 0.0) + time.perf_counter() - begin
        return result


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=100_000)
    arguments.add_argument("--shards", type=int, default=8)
    given = arguments.parse_args()
    table = Table(title=f"{given.messages:,} single loads, {given.shards} shards: seconds")
    for column in ("", "slices", "compact", "fire", "plan", "read", "delete"):
        table.add_column(column, justify="right" if column else "left")
    with (
        tempfile.TemporaryDirectory(prefix="ignis-compaction-", dir=".") as folder,
        Store.open(folder) as store,
    ):
        for name in ("single", "compacted"):
            life = Life(store, store.create_queue(name, SCHEMA, shards=given.shards))
            life.load(given.messages)
            if name == "compacted":
                life.compact()
            slices = life.slices
            assert life.handle() == given.messages
            seconds = (
                life.seconds.get(step) for step in ("compact", "fire", "plan", "read", "delete")
            )
            shown = ("" if second is None else f"{second:.2f}" for second in seconds)
            table.add_row(name, f"{slices:,}", *shown)
    Console().print(table)


if __name__ == "__main__":
    main()
