"""
The driver of the readers of a log, and what must hold of them.

    python -m tests.crash.spark.readers '{"path": …}'

Takes a `Reading` as JSON: the queries of one session copy what they read to a queue each. One reads
the log itself, and the others read subscriptions to it: one to all of it, one to what a selector
chooses, one that seeks back, and replays. Between two lives, a person loads messages and does
something with the subscriptions, in a process that dies at a crash point and does it again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from queue_core import Queue, Store
from queue_core.errors import QueueExists
from tests.books import audit
from tests.crash.spark.copied import altered
from tests.crash.spark.driver import session
from tests.crash.spark.lives import Work
from tests.crash.spark.scene import SCHEMA, numbered
from tests.referee import Counts
from tests.tree import ROOT

SELECTOR = "number % 3 <> 0"
#: The subscriptions, and the name under which the log is read.
REPLAYS = ("again-0", "again-1")
SUBSCRIPTIONS = ("plain", "chosen", "back", *REPLAYS)
READERS = (*SUBSCRIPTIONS, "log")
#: Messages that are loaded before each life, in so many loads.
LOAD, LOADS = 3_000, 3


@dataclass(frozen=True, kw_only=True)
class Reading(Work):
    """The work of a driver."""

    path: str
    checkpoints: str
    limit: int
    until_empty: bool = True
    master: str = "local[2]"
    java_options: str = ""
    command: ClassVar[tuple[str, ...]] = ("tests.crash.spark.readers",)


def main(text: str) -> None:
    """Do the work that *text* describes."""
    work = Reading.from_json(text)
    spark = session(work.master, work.java_options)
    queries = []
    with Store.open(work.path) as store:
        readers = [name for name in READERS if name in (*store.queues(), "log")]
    for name in readers:
        source = {"path": work.path, "queue": name, "numPartitions": 1, "consumer": name}
        source |= {"maxMessagesPerTrigger": work.limit, "sweepable": "false"}
        if name == "log":
            source = {"path": work.path, "queue": "in", "read": "log"}
            source |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": work.limit}
        rows = spark.readStream.format("ignis").options(**source).load().select(SCHEMA.names)
        writer = rows.writeStream.format("ignis").options(
            path=work.path,
            queue=f"out-{name}",
            key="customer",
            checkpointLocation=f"{work.checkpoints}/{name}",
        )
        ends = {"availableNow": True} if work.until_empty else {"processingTime": "0 seconds"}
        queries.append(writer.trigger(**ends).start())
    print("up", flush=True)
    for query in queries:
        query.awaitTermination()
    spark.stop()


# What a person does


def _seek(store: Store) -> None:
    back = store.queue("back")
    back.admin.pause()
    back.admin.seek("begin", force=True)
    back.admin.resume()


def _replay(store: Store) -> None:
    name = next((name for name in REPLAYS if name not in store.queues()), REPLAYS[-1])
    with suppress(QueueExists):
        store.queue("in").replay(name)


def _snapshot(store: Store) -> None:
    with suppress(QueueExists):
        store.queue("chosen").admin.snapshot("kept")


def _detach(store: Store) -> None:
    store.queue("plain").admin.detach()


def _attach(store: Store) -> None:
    if store.queue("plain").info.detached_at:
        store.queue("plain").admin.attach()


#: What a person does, by the name of its crash points.
ACTS: Mapping[str, Callable[[Store], Any]] = {
    "seek": _seek,
    "replay": _replay,
    "snapshot": _snapshot,
    "detach": _detach,
    "attach": _attach,
    "take_in": lambda store: store.queue("chosen").peek(1),
}


def act(path: str, what: str, point: str = "") -> int:
    """Do something in a process of its own, which dies at a crash point if told so."""
    environment = os.environ | ({"IGNIS_FAULT": f"{what}.{point}"} if point else {})
    command = [sys.executable, "-m", "tests.crash.spark.readers", path, what]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


class ReadScene:
    """A store with a log, its subscriptions, and a queue for each of those who read."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.path = folder / "store"
        self.checkpoints = folder / "checkpoints"
        #: By its batches, a run knows that a life works.
        self.checkpoint = self.checkpoints / "chosen"
        #: What drivers write to stderr.
        self.said = folder / "stderr"
        self.messages = 0
        #: How many messages each replay has.
        self._replayed: dict[str, int] = {}
        # A query of a detached subscription would fail.
        acts = [(what,) for what in ACTS if what not in ("detach", "attach")]
        self._acts = cycle(product([*acts, ("detach", "attach")], ("before_commit", "committed")))
        with self.store() as store:
            topic = store.create_queue("in", SCHEMA, shards=2, key="customer", log="7 days")
            for name in ("plain", "chosen", "back"):
                chooses = {"selector": SELECTOR} if name == "chosen" else {}
                store.subscribe(name, to="in", start="earliest", **chooses)
            store.queue("back").admin.snapshot("begin")
            for name in READERS:
                store.create_queue(f"out-{name}", SCHEMA, shards=2, key="customer")
            self._load(topic)

    def store(self) -> Store:
        """The store, opened; to be closed by the caller."""
        return Store.open(self.path)

    def reading(self, limit: int, **more: Any) -> Reading:
        """The work of a driver of this scene."""
        return Reading(path=str(self.path), checkpoints=str(self.checkpoints), limit=limit, **more)

    def waiting(self) -> int:
        """How many messages the query with the selector has before it."""
        with self.store() as store:
            return sum(store.queue("chosen").metadata().column("waiting").to_pylist())

    def between(self) -> list[str]:
        """Load more, and do one thing, in a process that dies over it; what went wrong."""
        acts, point = next(self._acts)
        wrong = []
        for what in acts:
            # Nothing may be left to do, and then there is no such point to die at.
            if (code := act(str(self.path), what, point)) not in (-signal.SIGKILL, 0):
                wrong.append(f"{what} ended with {code} at {point}")
            # Whatever the first process left behind, the second one does it.
            if code := act(str(self.path), what):
                wrong.append(f"{what} ended with {code}")
        with self.store() as store:
            if "seek" in acts:
                _empty(store.queue("out-back"))
            for name in REPLAYS:
                if name in store.queues():
                    self._replayed.setdefault(name, self.messages)
            self._load(store.queue("in"))
        return wrong

    def count(self) -> Counts:
        """Count at any time what has come out, of all readers together."""
        found = Counts()
        with self.store() as store:
            for name in READERS:
                wanted = self._wanted(name)
                rows = store.queue(f"out-{name}").browse().select(SCHEMA.names)
                numbers = rows.column("number").to_numpy()
                known = np.isin(numbers, wanted)
                came = len(np.unique(numbers[known]))
                found.attempted += len(wanted)
                found.acknowledged += len(wanted)
                found.delivered += came
                found.duplicated += int(known.sum()) - came
                found.unexpected += int((~known).sum()) + altered(rows.filter(known))
        return found

    def at_the_end(self) -> tuple[Counts, list[str]]:
        """The counts, and whatever is not as it must be."""
        counts = self.count()
        counts.lost = counts.attempted - counts.delivered
        with self.store() as store:
            audit(store)
            wrong = [str(row) for row in store.admin.fsck(deep=True).to_pylist()]
            for name in {*SUBSCRIPTIONS} & {*store.queues()}:
                totals = store.queue(name).metadata()
                for what in ("waiting", "in_flight", "damaged"):
                    if total := sum(totals.column(what).to_pylist()):
                        wrong.append(f"{name}: {what} = {total}")
        if not counts.right:
            wrong.append(f"not exactly once: {counts}")
        return counts, wrong

    def _load(self, topic: Queue) -> None:
        for _ in range(LOADS):
            numbers = np.arange(self.messages, self.messages + LOAD // LOADS)
            topic.load(numbered(numbers))
            self.messages += len(numbers)
        # The queue itself is not consumed; its messages stay in the log.
        _empty(topic)

    def _wanted(self, name: str) -> np.ndarray:
        numbers = np.arange(self._replayed.get(name, 0) if name in REPLAYS else self.messages)
        return numbers[numbers % 3 != 0] if name == "chosen" else numbers


def _empty(queue: Queue) -> None:
    while firing := queue.fire(100_000):
        queue.delete(firing)


def _do(path: str, what: str) -> None:
    with Store.open(path) as store:
        ACTS[what](store)


if __name__ == "__main__":
    _do(*sys.argv[1:]) if sys.argv[2:] else main(sys.argv[1])
