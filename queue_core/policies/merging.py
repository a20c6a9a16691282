"""Messages that become one: who takes over from whom, and what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from queue_core.policies.aggregates import Take
from queue_core.policies.inputs import Overwritten, PolicyInput, PolicyResult
from queue_core.policies.numbering import first_of
from queue_core.rows import Numbers


def merged(
    arena: PolicyInput, takes: Sequence[Take], into_queued: Numbers, groups: Numbers
) -> PolicyResult:
    """
    The verdict when new messages of a group become one with the first of it.

    *groups* has a group for each new message, from 0 on; *into_queued* a queued message for each
    group that is the first of it, or -1 where its first new one is.
    """
    count = len(into_queued)
    first = first_of(groups, count)
    kept = np.zeros(len(groups), np.bool_)
    kept[first[into_queued < 0]] = True
    # Of those that take something over, the group gets a number of its own.
    takes_over = np.bincount(groups[~kept], minlength=count) > 0
    number = np.cumsum(takes_over) - 1
    into = np.where(into_queued < 0, -1, into_queued)[takes_over]
    mine = first[takes_over]
    rest = np.flatnonzero(~kept)
    order = np.concatenate([np.arange(len(into)), number[groups[rest]]])
    queued, new = np.flatnonzero(into >= 0), np.flatnonzero(into < 0)
    values = {}
    for take in takes:
        firsts = _interleaved(
            arena.queued.column(take.column).take(pa.array(into[queued])),
            arena.new.column(take.column).take(pa.array(mine[new])),
            np.argsort(np.concatenate([queued, new])),
        )
        others = arena.new.column(take.column).take(pa.array(rest))
        column = pa.chunked_array([*firsts.chunks, *others.chunks], firsts.type)
        values[take.column] = take.fold(column, order, len(into))
    return PolicyResult(
        kept=kept,
        overwritten=_overwritten(into[queued], values, queued),
        overwritten_new=_overwritten(mine[new], values, new),
    )


def _interleaved(one: pa.ChunkedArray, other: pa.ChunkedArray, order: Numbers) -> pa.ChunkedArray:
    both = pa.chunked_array([*one.chunks, *other.chunks], one.type)
    return both.take(pa.array(order))


def _overwritten(rows: Numbers, values: dict[str, pa.Array], of: Numbers) -> Overwritten:
    return Overwritten(
        rows=rows, values={name: column.take(pa.array(of)) for name, column in values.items()}
    )
