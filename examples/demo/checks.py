"""Checks after each run: results of the queue, compared with results computed from the file."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from examples.demo.crash import Crash
from examples.demo.flights import delays_of
from examples.demo.pipeline import Run
from examples.demo.work import why_not

#: Minutes by which two means of the same delays may differ: they are summed in another order.
ROUNDING = 1e-9


def of_run(run: Run, flights: pa.Table) -> dict[str, bool]:
    """Return the checks of the first run, each with whether it holds."""
    end = run.samples[-1]
    stayed = flights.filter(pc.is_null(flights["dep_time"]))
    return {
        "every flight was loaded once": end.loaded == flights.num_rows,
        "every flight was deleted or sidelined, and none is left": (
            end.settled == flights.num_rows and end.waiting == end.in_flight == 0
        ),
        "the sideline holds the flights that never departed, each with its reason": (
            run.reasons == _counted(why_not(stayed)) and end.sidelined == stayed.num_rows
        ),
        "the delays equal those computed from the file": same_delays(
            run.delays, delays_of(flights)
        ),
    }


def of_crash(crash: Crash, flights: pa.Table) -> dict[str, bool]:
    """Return the checks of the second run, each with whether it holds."""
    stayed = flights.filter(pc.is_null(flights["dep_time"]))["number"].to_pylist()
    end = crash.ended
    return {
        "the driver died in the middle of its work": 0 < crash.killed.settled < flights.num_rows,
        "queue to queue: no flight was lost": crash.lost == 0,
        "queue to queue: no flight was doubled": crash.doubled == 0,
        "every flight was deleted or sidelined once, and none is left": (
            end.settled == end.loaded == flights.num_rows and end.waiting == end.in_flight == 0
        ),
        "the sideline holds the flights that never departed, each once": (
            crash.sidelined == stayed and crash.failures == len(stayed)
        ),
    }


def _counted(reasons: pa.ChunkedArray) -> Mapping[str, int]:
    return {each["values"]: each["counts"] for each in pc.value_counts(reasons).to_pylist()}


def same_delays(some: pa.Table, others: pa.Table) -> bool:
    """Return whether two tables of `flights.delays_of` agree."""
    keys = ["carrier", "hour", "flights"]
    if some.select(keys).to_pylist() != others.select(keys).to_pylist():
        return False
    difference = pc.max(pc.abs(pc.subtract(some["delay"], others["delay"]))).as_py()
    return bool(difference < ROUNDING)
