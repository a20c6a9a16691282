"""Tallies: how many calls of a task failed, by the keys of its breaker. Needs no handler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.handling.breakers.keys import keys_of
from queue_core.values.failure_kinds import EXCEPTION, TIMEOUT
from queue_core.values.outcomes import RELOAD, SIDELINE

#: A column of a task's settlement: the key of each message.
BREAKER = "_breaker"
#: Before a key: the task made no further calls for it.
STOPPED = "!"
#: The kinds of failures that a breaker counts.
COUNTED = (EXCEPTION, TIMEOUT)


class Tally(NamedTuple):
    """The calls of one key."""

    calls: int
    failures: int
    #: Whether a task has stopped because too many of its calls failed.
    tripped: bool


def tallies_of(settled: pa.RecordBatch) -> dict[str, Tally]:
    """Return the tallies of a settlement with the column `BREAKER`."""
    outcomes = settled.column("outcome")
    failed = pc.and_(
        pc.equal(outcomes, SIDELINE),
        pc.is_in(settled.column("kind"), value_set=pa.array(COUNTED)),
    )
    rows = pa.table(
        {
            "key": settled.column(BREAKER),
            "calls": pc.not_equal(outcomes, RELOAD).cast(pa.int64()),
            "failures": failed.cast(pa.int64()),
        }
    )
    sums = rows.group_by("key").aggregate([("calls", "sum"), ("failures", "sum")])
    names = ("key", "calls_sum", "failures_sum")
    return merged(
        {key.removeprefix(STOPPED): Tally(calls, failures, key.startswith(STOPPED))}
        for key, calls, failures in zip(*(sums[name].to_pylist() for name in names), strict=True)
    )


def tallies_of_settlement(settled: pa.RecordBatch, by: str | None) -> dict[str, Tally]:
    """
    Return the tallies of a settlement that no task of `consume` has made.

    Each row that is not reloaded is a call. *by* is the column of the breaker, if it has one.
    """
    names, count = settled.schema.names, settled.num_rows
    kinds = settled.column("kind") if "kind" in names else pa.nulls(count)
    rows = {
        "outcome": settled.column("outcome"),
        "kind": kinds.cast(pa.string()),
        BREAKER: keys_of(settled, by).dictionary_decode(),
    }
    return tallies_of(pa.record_batch(rows))


def merged(parts: Iterable[Mapping[str, Tally]]) -> dict[str, Tally]:
    """Return the sums of several tallies."""
    sums: dict[str, Tally] = {}
    for part in parts:
        for key, tally in part.items():
            other = sums.get(key, Tally(0, 0, False))
            sums[key] = Tally(
                tally.calls + other.calls,
                tally.failures + other.failures,
                tally.tripped or other.tripped,
            )
    return sums
