"""Tallies: what happened to the messages of each queue since its creation, by a label.

They say how many messages failed of each kind; `timings` has others. A transaction adds to them
after all other changes, so that others wait for their rows for as short a time as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from queue_core.catalog import dialect
from queue_core.catalog.tables import queues, tallies

#: Messages that failed, by the kind of the failure.
FAILURES = "failures"


def count_failures(connection: Connection, queue_id: int, kinds: Mapping[str, int]) -> None:
    """Add to the number of messages of a queue that failed, by kind."""
    new = dialect.insert_new(connection, tallies)
    adding = new.on_conflict_do_update(
        index_elements=list(tallies.primary_key),
        set_={"total": tallies.c.total + new.excluded.total},
    )
    row = {"queue_id": queue_id, "name": FAILURES}
    # Sorted, so that no two transactions wait for each other.
    rows = [row | {"label": kind, "total": count} for kind, count in sorted(kinds.items())]
    connection.execute(adding, rows)


def read(connection: Connection) -> Sequence[Row[Any]]:
    """Return the failures of all queues by kind, each with the name of its `queue`."""
    query = select(queues.c.name.label("queue"), tallies).join(
        tallies, tallies.c.queue_id == queues.c.id
    )
    here = tallies.c.name == FAILURES
    return connection.execute(query.where(here).order_by(queues.c.name, tallies.c.label)).all()
