"""Merge messages: choose the messages that take values, and compute these values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from queue_core.policies.aggregates import Take
from queue_core.policies.inputs import Overwritten, PolicyInput, PolicyResult
from queue_core.policies.numbering import first_of
from queue_core.values.rows import Numbers


def merged(
    inputs: PolicyInput, takes: Sequence[Take], into_queued: Numbers, groups: Numbers
) -> PolicyResult:
    """
    Return the result when the messages of each group merge into its first one.

    *groups* has the group of each new message, numbered from 0. *into_queued* has the queued
    message that is the first of each group, or -1 if the first is the group's first new message.
    """
    count = len(into_queued)
    first_new = first_of(groups, count)
    kept = np.zeros(len(groups), np.bool_)
    kept[first_new[into_queued < 0]] = True
    # Only groups in which a message takes values are numbered and folded.
    takes_over = np.bincount(groups[~kept], minlength=count) > 0
    number = np.cumsum(takes_over) - 1
    into = into_queued[takes_over]
    into_new = first_new[takes_over]
    rest = np.flatnonzero(~kept)
    order = np.concatenate([np.arange(len(into)), number[groups[rest]]])
    queued, new = np.flatnonzero(into >= 0), np.flatnonzero(into < 0)
    values = {}
    for take in takes:
        firsts = _interleaved(
            inputs.queued.column(take.column).take(pa.array(into[queued])),
            inputs.new.column(take.column).take(pa.array(into_new[new])),
            np.argsort(np.concatenate([queued, new])),
        )
        others = inputs.new.column(take.column).take(pa.array(rest))
        column = pa.chunked_array([*firsts.chunks, *others.chunks], firsts.type)
        values[take.column] = take.fold(column, order, len(into))
    return PolicyResult(
        kept=kept,
        overwritten=_overwritten(into[queued], values, queued),
        overwritten_new=_overwritten(into_new[new], values, new),
    )


def _interleaved(one: pa.ChunkedArray, other: pa.ChunkedArray, order: Numbers) -> pa.ChunkedArray:
    both = pa.chunked_array([*one.chunks, *other.chunks], one.type)
    return both.take(pa.array(order))


def _overwritten(rows: Numbers, values: dict[str, pa.Array], groups: Numbers) -> Overwritten:
    return Overwritten(
        rows=rows, values={name: column.take(pa.array(groups)) for name, column in values.items()}
    )
