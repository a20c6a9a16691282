"""Order the rows of a load by turns of their flows, within each shard. Touches no storage.

A flow is a value of the column `fair_by`. The messages of a flow stay in their order in each shard.
In several shards, they alternate, so that all shards have their part of each turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from queue_core.segments.shard_hash import hash_of
from queue_core.segments.sharder import Parts
from queue_core.values.ranks import TICKS, Ranking, Stretch, Ticks, packed, stretches
from queue_core.values.rows import Numbers
from queue_core.values.weights import Weights

#: The keys of special flows: of the whole queue, of messages that come to main again, of nulls,
#: and of those that were forgotten.
WHOLE, RETURNED, NULL, FORGOTTEN = 0, 1, 2, 3


def arrange(
    parts: Parts, column: str, weights: Weights, first_row: int
) -> tuple[Parts, Numbers, Ranking]:
    """
    Order the rows of each shard, which are staged together from a row of a segment on.

    Returns the rows, the new number of each row counted over all shards, and their ranks.
    """
    values = pa.chunked_array(
        [chunk for _, rows in parts for chunk in rows.column(column).chunks],
        parts[0][1].schema.field(column).type,
    )
    coded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    sizes = [rows.num_rows for _, rows in parts]
    if len(coded.dictionary) == len(parts) == 1:
        (cost,) = _costs(coded.dictionary, weights).tolist()
        (flow,) = _keys(coded.dictionary).tolist()
        return parts, np.arange(sizes[0]), one_flow(sizes[0], first_row, flow, cost)
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    cost = _costs(coded.dictionary, weights)
    low, high, spans = _spans(codes, np.repeat(np.arange(len(parts)), sizes), cost)
    arranged: Parts = []
    numbers = np.empty(len(codes), dtype=np.int64)
    found: list[Stretch] = []
    begin = 0
    for (shard, rows), size in zip(parts, sizes, strict=True):
        here = slice(begin, begin + size)
        if len(spans) > 1:
            order = np.argsort(high[here], kind="stable")
            rows = rows.take(pa.array(order))
            low[here], high[here], codes[here] = (x[here][order] for x in (low, high, codes))
            numbers[begin + order] = np.arange(begin, begin + size)
        else:
            numbers[here] = np.arange(begin, begin + size)
        arranged.append((shard, rows))
        found += stretches(low[here], high[here], first_row + begin)
        begin += size
    ranking = Ranking(
        start=first_row,
        stop=first_row + begin,
        stretches=tuple(found),
        flows=_keys(coded.dictionary),
        spans=spans,
        codes=packed(codes, len(spans)),
    )
    return arranged, numbers, ranking


def _costs(values: pa.Array, weights: Weights) -> Ticks:
    """Return the ticks of a message of each value."""
    cost = np.full(len(values), TICKS, dtype=np.int64)
    if weights:
        # Not at the top: a query waits for imports, and few queues have weights of flows.
        import pyarrow.compute as pc

        names = pa.array([name for name, _ in weights], pa.string())
        at = pc.index_in(values.cast(pa.string()), value_set=names)
        given = np.array([round(TICKS / weight) for _, weight in weights], dtype=np.int64)
        known = pc.is_valid(at).to_numpy(zero_copy_only=False)
        cost[known] = given[at.drop_null().to_numpy(zero_copy_only=False)]
    return cost


def _keys(values: pa.Array) -> Ticks:
    """Return the key of the flow of each value."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    keys = np.full(len(values), NULL, dtype=np.int64)
    hashes = hash_of(values.drop_null()).view(np.int64)
    # Not the keys of special flows.
    special = (hashes >= WHOLE) & (hashes <= FORGOTTEN)
    keys[valid] = np.where(special, hashes + FORGOTTEN + 1, hashes)
    return keys


def _spans(codes: Ticks, shards: Ticks, cost: Ticks) -> tuple[Ticks, Ticks, Ticks]:
    """Return the begin and the end of the span of each row, and the ticks of each flow."""
    counts = np.bincount(codes, minlength=len(cost)).astype(np.int64)
    count_of = int(shards[-1]) + 1 if len(shards) else 1
    # A flow takes its shards in turn, as if each had an equal part of every turn.
    pairs, of, in_pair = np.unique(
        codes * count_of + shards, return_inverse=True, return_counts=True
    )
    flow = pairs // count_of
    several = np.bincount(flow, minlength=len(cost))
    turn = np.arange(len(pairs)) - (np.cumsum(several) - several)[flow]
    order = np.argsort(of, kind="stable")
    nth = np.empty(len(codes), dtype=np.int64)
    nth[order] = np.arange(len(codes)) - np.repeat(np.cumsum(in_pair) - in_pair, in_pair)
    length = counts[flow] * cost[flow] / (in_pair * several[flow])
    step = nth * several[flow][of] + turn[of]
    low = (step * length[of]).astype(np.int64)
    high = ((step + 1) * length[of]).astype(np.int64)
    return low, np.maximum(high, low + 1), counts * cost


def one_flow(rows: int, first_row: int, flow: int = RETURNED, cost: int = TICKS) -> Ranking:
    """Return the ranks of rows of one flow, in their order; each takes *cost* ticks."""
    span = np.array([rows * cost], dtype=np.int64)
    line = Stretch(first_row, first_row + rows, 0, cost)
    return Ranking(first_row, first_row + rows, (line,), np.array([flow]), span, None)


def whole(rankings: Sequence[Ranking], rows: int) -> Sequence[Ranking]:
    """Return the rankings of a segment; of rows that were staged without, as of one flow."""
    return rankings or (one_flow(rows, 0),)
