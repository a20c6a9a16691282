"""How long the calls of a handler took, by the outcome of their messages.

In a query of Spark, tasks measure, and the commit counts: the first row of each batch of outcomes
has what was measured, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.handling.calls import HandlerCalls
from queue_core.values.failure_kinds import UNREADABLE
from queue_core.values.histogram import Measured
from queue_core.values.outcomes import DELETE, RELOAD, SIDELINE, UNHANDLED

#: The column of the first rows.
TOOK = "_took"


class Took(NamedTuple):
    """How long messages of a queue took that had one outcome."""

    #: The name of the queue; empty: the only one.
    queue: str
    outcome: str
    measured: Measured


def took_of(settled: pa.Table, calls: HandlerCalls[Any], queue: str | None) -> pa.Array:
    """Return the column `TOOK` of a batch's outcomes, after all calls were made."""
    if queue is None:
        return pa.nulls(settled.num_rows, pa.string())
    seconds = np.array(calls.seconds_of(settled.num_rows))
    found = [
        (queue, outcome, Measured.of(took, np.ones(len(took), np.int64)).to_list())
        for outcome, took in by_outcome(seconds, settled).items()
    ]
    return pa.array([json.dumps(found), *[None] * (settled.num_rows - 1)], pa.string())


def read(texts: Iterable[str]) -> Iterator[Took]:
    """Yield what values of the column `TOOK` say."""
    for text in texts:
        for queue, outcome, measured in json.loads(text):
            yield Took(queue, outcome, Measured.from_list(measured))


def by_outcome(
    seconds: npt.NDArray[np.float64], rows: pa.Table
) -> dict[str, npt.NDArray[np.float64]]:
    """
    Return the seconds of messages by the outcome that counts: ``ignored`` is one of its own.

    *rows*: their `SETTLEMENT`. Messages that no handler was called for are left out.
    """
    outcomes, kinds = rows.column("outcome"), rows.column("kind")
    called = pc.invert(pc.is_in(kinds, value_set=pa.array([UNREADABLE, UNHANDLED])))
    done = pc.equal(outcomes, DELETE)
    masks = {
        "deleted": pc.and_(done, kinds.is_null()),
        "ignored": pc.and_(done, kinds.is_valid()),
        "sidelined": pc.equal(outcomes, SIDELINE),
        "reloaded": pc.equal(outcomes, RELOAD),
    }
    found = {}
    for name, mask in masks.items():
        took = seconds[pc.and_(called, mask).to_numpy()]
        if len(took):
            found[name] = took
    return found
