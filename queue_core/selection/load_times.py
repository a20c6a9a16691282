"""Ages: when the messages of compacted slices were loaded.

A slice has one time of loading. A compacted slice has the time of its oldest message; the times of
the others are read from the segment, before the transaction that needs them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import read_plans
from queue_core.catalog.slices.conditions import WAITING, in_queue, of_compacted_segments
from queue_core.catalog.slices.slices import fetch
from queue_core.segments.reader import read_table
from queue_core.selection.request import FireRequest
from queue_core.values.model import QueueInfo, Slice
from queue_core.values.rows import Numbers, Rows


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """The times of loading of some rows of a segment."""

    numbers: Numbers
    loaded_at: Numbers

    @property
    def rows(self) -> Rows:
        """The rows whose ages are known."""
        return Rows.of_numbers(self.numbers)

    def before(self, time: int) -> Rows:
        """Return the rows that were loaded by *time*."""
        return Rows.of_numbers(self.numbers[self.loaded_at <= time])

    def oldest(self, rows: Rows) -> int:
        """Return when the first of some of the rows was loaded."""
        return int(self.loaded_at[np.isin(self.numbers, rows.numbers())].min())


def read_ages(
    catalog: Catalog, storage_uri: str, queue: QueueInfo, request: FireRequest
) -> dict[int, LoadTimes]:
    """Return the ages of the compacted slices that meet a request's rules, by segment."""
    with catalog.read() as connection:
        found = fetch(
            connection,
            *in_queue(queue.id, request.magazine),
            *WAITING,
            *of_compacted_segments(queue.id),
            *request.rules,
        )
        by_segment: dict[int, list[Slice]] = {}
        for piece in found:
            by_segment.setdefault(piece.segment_id, []).append(piece)
        plans = {
            segment: read_plans.build(
                connection, [queue], [(s, s.rows) for s in pieces], storage_uri
            )
            for segment, pieces in by_segment.items()
        }
    ages = {}
    for segment, plan in plans.items():
        # A task's rows are read in their own order, not in the order of its parts.
        numbers = np.concatenate(
            [
                np.sort(np.concatenate([part.rows.numbers() for part in task.parts]))
                for task in plan.tasks
            ]
        )
        times = read_table(plan, ["_loaded_at"]).column("_loaded_at").cast("int64").to_numpy()
        ages[segment] = LoadTimes(numbers.astype(np.int64), times)
    return ages
