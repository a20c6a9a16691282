"""Merging: put the messages of several shards into one order, by the time of loading.

Each shard keeps its own order. A message that was loaded before its predecessors in the shard, as
after a shovel, comes right after them. Loads of the same moment come in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from queue_core.values.rows import Numbers


def merged(times: Numbers, ids: Numbers, counts: Sequence[int]) -> Numbers:
    """
    Return the indices of all messages in the merged order.

    *times* of loading and message *ids* are those of the messages of each shard in its order, one
    shard after another; *counts* are the numbers of messages of the shards.
    """
    ranks = np.empty(len(times), dtype=np.int64)
    ranks[np.lexsort((ids, times))] = np.arange(len(times))
    shards = np.split(ranks, np.cumsum(counts)[:-1])
    reached = [np.maximum.accumulate(of_shard) for of_shard in shards]
    return np.argsort(np.concatenate(reached), kind="stable")


def merge_rows(rows: pa.Table) -> pa.Table:
    """Sort messages of one queue that are in order of shard and place."""
    shards = rows.column("_shard").to_numpy()
    times = rows.column("_loaded_at").cast(pa.int64()).to_numpy()
    ends = np.flatnonzero(shards[1:] != shards[:-1]) + 1
    counts = np.diff([0, *ends.tolist(), len(shards)]).tolist()
    return taken(rows, merged(times, rows.column("_message_id").to_numpy(), counts))


def taken(rows: pa.Table, places: Numbers) -> pa.Table:
    """Return rows in another order, in several chunks if one cannot hold them."""
    try:
        return rows.take(pa.array(places))
    except pa.ArrowInvalid:
        # A chunk holds up to 2 GiB of a column.
        if len(places) < 2:
            raise
    halves = []
    for half in np.array_split(places, 2):
        chosen = np.zeros(rows.num_rows, dtype=bool)
        chosen[half] = True
        halves.append(taken(rows.filter(pa.array(chosen)), half.argsort().argsort()))
    return pa.concat_tables(halves)
