"""Distribute the rows of loads over segments and, without a key, over the shards in turn."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from queue_core.segments.stager import Stager, remove_staged
from queue_core.segments.storage import Storage
from queue_core.values.model import QueueInfo, Staged
from queue_core.values.rows import Numbers

#: A larger load without a key is split into parts of this many bytes, one for each shard.
SPREAD_BYTES = 4 << 20


class Distributor:
    """Stages the loads of a plain process, one after another."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        # A random start, so that processes begin with different shards.
        self._turn = itertools.count(random.randrange(1 << 16))

    def staged(
        self, queue: QueueInfo, table: pa.Table, first: int | None = None
    ) -> tuple[list[Staged], Numbers]:
        """
        Return rows as segments, and the number of each row, counted over all segments.

        *first*: the turn that picks the first shard of a queue without a key; by default the next.
        """
        turn = self._turn if first is None else itertools.count(first)
        staged: list[Staged] = []
        orders: list[Numbers] = []
        try:
            for part in _parts(queue, table):
                stager = Stager(self._storage, queue, keep_order=True)
                written = stager.write(part)
                shard = next(turn) % queue.shards
                base = sum(segment.rows for segment in staged)
                staged += [segment.in_shard(shard) for segment in written]
                orders += [order + base for order in stager.order]
        except BaseException:
            remove_staged(self._storage, staged)
            raise
        return staged, orders[0] if len(orders) == 1 else np.concatenate(orders)


def _parts(queue: QueueInfo, table: pa.Table) -> Iterable[pa.Table]:
    """Split a large load without a key into parts, at most one for each shard."""
    parts = 1
    if queue.key is None and table.num_rows > 1:
        parts = max(min(queue.shards, table.nbytes // SPREAD_BYTES), 1)
    rows = -(-table.num_rows // parts)
    return (table.slice(start, rows) for start in range(0, table.num_rows, rows))
