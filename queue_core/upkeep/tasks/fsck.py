"""Task fsck: check the invariants of the store, and report what is broken.

It changes only the task log, and reads no segment unless a stream asks for it. An operator repairs:
``ignis fsck --repair``.
"""

from __future__ import annotations

import logging
from collections import Counter

from sqlalchemy import Connection

from queue_core.catalog.records import schedule
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import segments
from queue_core.upkeep.fsck.check import fsck
from queue_core.upkeep.tasks.task import TaskContext

_log = logging.getLogger(__name__)


#: A task of Spark reads at least so many segments.
SHARE_SEGMENTS = 1_000


def shares(context: TaskContext, _: None = None) -> int:
    """Return how many processes divide the segments among them, if they read these."""
    if not context.deep:
        return 1
    with context.catalog.read() as connection:
        return 1 + segments.count(connection) // SHARE_SEGMENTS


def run(context: TaskContext, _: None = None) -> int:
    """Return the number of broken invariants. Each is logged, and listed in the view of reports."""
    # Gently: one part after the other.
    found = fsck(
        context.catalog, context.storage, deep=context.deep, threads=1, share=context.share
    ).to_pylist()
    broken: Counter[tuple[str, str]] = Counter()
    for row in found:
        broken[row["invariant"], row["table"]] += 1
        _log.warning("%(invariant)s is broken: %(table)s %(row)s: %(problem)s", row)

    def write(connection: Connection) -> None:
        moves = Moves()
        for (invariant, table), count in broken.items():
            moves.count(None, count, f"{table}: {invariant} is broken", None)
        moves.record(connection, schedule.STORE, "fsck")

    if broken:
        context.catalog.write(write)
    return len(found)
