"""Task sample: write down the figures of all queues, for the view ``samples``.

It reads the figures of all queues in one statement, and writes them in one short transaction. A
process that ends in between leaves a gap. The next round computes its rates over that gap.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import figures, samples, timings
from queue_core.upkeep.tasks.task import TaskContext


def run(context: TaskContext, _: None = None) -> int:
    """Take a sample; return 0, because no message moves."""
    sample(context.catalog)
    return 0


def sample(catalog: Catalog) -> None:
    """Take a sample of all queues, and sum up the minutes and hours that are over."""
    with catalog.read() as connection:
        last = samples.last_round(connection)
        now = max((row.now for row in last.values()), default=0) or dialect.read_clock(connection)
        present = figures.read(connection)
    rows = [samples.row_of(each, last.get(each.queue_id), now) for each in present]
    # Without a round before it, no minute can be over.
    before = max((row.taken_at for row in last.values()), default=now)
    # What is measured meanwhile belongs to the next round.
    measured = not last or any(row.measured for row in last.values())

    def write(connection: Connection) -> None:
        took = timings.take_sample(connection) if measured else {}
        times = {queue_id: timings.merged([part]) for queue_id, part in took.items()}
        none = timings.merged([])
        samples.add(connection, [row | times.get(row["queue_id"], none) for row in rows])
        samples.roll_up(connection, now, before)

    catalog.write(write)
