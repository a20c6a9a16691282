"""All that a store holds, to tell whether something has changed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update

from queue_core import Store
from queue_core.catalog.tables import metadata, queues, slices


def dump(store: Store) -> dict[str, Any]:
    """Every row of every table, and every file of the storage."""
    with store.catalog.read() as connection:
        tables = {
            table.name: sorted(map(repr, connection.execute(select(table))))
            for table in metadata.sorted_tables
        }
    return tables | {"storage": store.storage.list(), "reports": store.storage.damage_reports()}


def backdate(store: Store, seconds: float) -> None:
    """Let fired messages have been fired *seconds* earlier."""
    by = int(seconds * 1e6)
    store.catalog.write(
        lambda connection: connection.execute(
            update(slices)
            .where(slices.c.fired_at.is_not(None))
            .values(fired_at=slices.c.fired_at - by)
        )
    )


def age(store: Store, seconds: float) -> None:
    """Let every queue have been created and deactivated *seconds* earlier."""
    by = int(seconds * 1e6)
    earlier = update(queues).values(
        created_at=queues.c.created_at - by, deactivated_at=queues.c.deactivated_at - by
    )
    store.catalog.write(lambda connection: connection.execute(earlier))
