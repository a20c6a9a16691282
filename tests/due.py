"""Let time pass for the messages that wait for their time."""

from __future__ import annotations

from sqlalchemy import Connection, select

from queue_core import Store
from queue_core.catalog import seals
from queue_core.catalog.tables import slices
from queue_core.values.due import NEVER


def make_due(store: Store, seconds: float = 1e5) -> None:
    """Let *seconds* pass for messages that wait for their time; dead ones stay dead."""

    def work(connection: Connection) -> None:
        waiting = select(slices.c.id, slices.c.due_at).where(slices.c.due_at < NEVER)
        for row in connection.execute(waiting).all():
            due_at = row.due_at - int(seconds * 1e6)
            seals.change(connection, slices, slices.c.id == row.id, due_at=due_at)

    store.catalog.write(work)
