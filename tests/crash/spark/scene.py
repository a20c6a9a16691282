"""A store with two queues: numbered messages in `in`, which a driver copies to `out`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core import Queue, Store

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        #: The key: its messages stay in order.
        pa.field("customer", pa.string(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),
    ]
)
SHARDS = 8
CUSTOMERS = 1000
#: Messages of one load.
LOAD = 100_000


class Scene:
    """The scene of a kill: a store, a checkpoint, and the first load."""

    def __init__(self, folder: Path, messages: int, routes: int = 0) -> None:
        folder.mkdir(parents=True)
        #: The queues to which messages go: with *routes*, so many, by their customer.
        self.outs = [f"out{n}" for n in range(routes)] or ["out"]
        self.routes = routes
        self.store_path = folder / "store"
        self.checkpoint = folder / "checkpoint"
        #: What drivers write to stderr.
        self.said = folder / "stderr"
        #: How many messages there were to load, and of which of them the load has returned.
        self.messages = messages
        self.acknowledged = np.zeros(messages, dtype=bool)
        with self.store() as store:
            queue = _make_queue(store, "in")
            for out in self.outs:
                _make_queue(store, out)
            for first in range(0, messages, LOAD):
                numbers = np.arange(first, min(first + LOAD, messages))
                assert len(queue.load(numbered(numbers))) == len(numbers)
                self.acknowledged[numbers] = True

    def store(self) -> Store:
        """The store, opened; to be closed by the caller."""
        return Store.open(self.store_path)

    def waiting(self) -> int:
        """How many messages have not been fired yet."""
        with self.store() as store:
            return sum(store.queue("in").metadata().column("waiting").to_pylist())


def numbered(numbers: np.ndarray) -> pa.Table:
    """The messages of these numbers; a number determines its whole message."""
    customers = pc.cast(pa.array(numbers % CUSTOMERS), pa.string())
    mixed = pc.cast(pa.array(numbers * 2_654_435_761 % (1 << 62)), pa.string())
    payloads = pc.binary_repeat(pc.utf8_lpad(mixed, 20, "0"), 5)
    return pa.table([pa.array(numbers), customers, payloads], schema=SCHEMA)


def _make_queue(store: Store, name: str) -> Queue:
    return store.create_queue(name, SCHEMA, shards=SHARDS, key="customer")
