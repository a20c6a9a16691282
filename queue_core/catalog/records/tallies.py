"""Tallies: what happened to the messages of each queue since its creation, by a label.

They say how many messages failed of each kind; `timings` has others. A transaction adds to the row
of a shard whose counters it changes too. So only those wait for it that wait anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, func, select

from queue_core.catalog import dialect
from queue_core.catalog.record_tables import tallies
from queue_core.catalog.tables import queues

#: Messages that failed, by the kind of the failure.
FAILURES = "failures"


def count_failures(
    connection: Connection, queue_id: int, shard: int, kinds: Mapping[str, int]
) -> None:
    """Add to the number of messages of a queue that failed, by kind; *shard*: one of theirs."""
    new = dialect.insert_new(connection, tallies)
    adding = new.on_conflict_do_update(
        index_elements=list(tallies.primary_key),
        set_={"total": tallies.c.total + new.excluded.total},
    )
    row = {"queue_id": queue_id, "name": FAILURES, "shard": shard}
    # Sorted, so that no two transactions wait for each other.
    rows = [row | {"label": kind, "total": count} for kind, count in sorted(kinds.items())]
    connection.execute(adding, rows)


def read(connection: Connection) -> Sequence[Any]:
    """Return the failures of all queues by kind, each with the name of its `queue`."""
    total = func.sum(tallies.c.total).cast(BigInteger).label("total")
    query = select(queues.c.name.label("queue"), tallies.c.label, total).join(
        tallies, tallies.c.queue_id == queues.c.id
    )
    of_kind = query.where(tallies.c.name == FAILURES).group_by(queues.c.name, tallies.c.label)
    return connection.execute(of_kind.order_by(queues.c.name, tallies.c.label)).all()
