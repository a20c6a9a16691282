"""How long the calls of a handler took, by the outcome of their messages.

In a query of Spark, tasks measure, and the commit counts: the first row of each batch of outcomes
has what was measured, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.values.failure_kinds import UNREADABLE
from queue_core.values.histogram import Measured
from queue_core.values.outcomes import DELETE, RELOAD, SIDELINE, UNHANDLED

#: The column of the first rows.
TOOK = "_took"


class CallTimes(NamedTuple):
    """The seconds of the calls for a batch: one call for each message, or one for all of them."""

    seconds: Sequence[float]
    messages: int


class Took(NamedTuple):
    """How long messages of a queue took that had one outcome."""

    #: The name of the queue; empty: the only one.
    queue: str
    outcome: str
    measured: Measured


def by_outcome(rows: pa.Table) -> dict[str, npt.NDArray[np.bool_]]:
    """Return which rows of a `SETTLEMENT` have which outcome: ``ignored`` is one of its own."""
    outcomes, kinds = rows.column("outcome"), rows.column("kind")
    deleted = pc.equal(outcomes, DELETE)
    if kinds.null_count == len(kinds) and pc.all(deleted).as_py():
        return {"deleted": np.ones(len(kinds), np.bool_)}
    has_kind = kinds.is_valid()
    masks = {
        "deleted": pc.and_not(deleted, has_kind),
        "ignored": pc.and_(deleted, has_kind),
        "sidelined": pc.equal(outcomes, SIDELINE),
        "reloaded": pc.equal(outcomes, RELOAD),
    }
    found = {outcome: mask.to_numpy() for outcome, mask in masks.items()}
    return {outcome: mask for outcome, mask in found.items() if mask.any()}


def measure(
    rows: pa.Table, masks: Mapping[str, npt.NDArray[np.bool_]], calls: Sequence[CallTimes]
) -> dict[str, Measured]:
    """
    Return how long messages took by outcome; *rows* and *masks* are those of `by_outcome`.

    Messages that no handler was called for are left out.
    """
    kinds = rows.column("kind")
    if len(masks) == 1 and kinds.null_count == len(kinds) and all(len(t) == 1 for t, _ in calls):
        # Each batch had one call, and one outcome.
        took = Measured.of([took[0] for took, _ in calls], [count for _, count in calls])
        return dict.fromkeys(masks, took)
    seconds = np.concatenate(
        [
            took if len(took) == count else np.full(count, took[0] if took else np.nan)
            for took, count in calls
        ]
    )
    # Most messages have none.
    if kinds.null_count < len(kinds):
        uncalled = pc.is_in(kinds, value_set=pa.array([UNREADABLE, UNHANDLED]))
        seconds[uncalled.to_numpy()] = np.nan
    if len(masks) == 1:
        return dict.fromkeys(masks, Measured.of(seconds))
    return {outcome: Measured.of(seconds[mask]) for outcome, mask in masks.items()}


def took_column(settled: pa.RecordBatch, calls: CallTimes, queue: str) -> pa.Array:
    """Return the column `TOOK` of a batch's outcomes, after all calls were made."""
    rows = pa.Table.from_batches([settled])
    found = [
        (queue, outcome, measured.seconds, measured.counts.tolist())
        for outcome, measured in measure(rows, by_outcome(rows), [calls]).items()
    ]
    return pa.array([json.dumps(found), *[None] * (settled.num_rows - 1)], pa.string())


def read(texts: Iterable[str]) -> Iterator[Took]:
    """Yield what values of the column `TOOK` say."""
    for text in texts:
        for queue, outcome, seconds, counts in json.loads(text):
            yield Took(queue, outcome, Measured(np.array(counts, np.int64), seconds))
