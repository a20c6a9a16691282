"""Find the newest version of a row that changes with most transactions.

A server keeps each version that an open transaction might still read. So a search by the key alone
would look at all of them. The newest one has the highest `version`, which an index has as well.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, FromClause, Table, func, select, true

from queue_core.catalog.databases.expressions import if_versions
from queue_core.catalog.tables import counters, queues, shard_locks, shards


def newest(table: Table, **key: Any) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a change to the row with a key."""
    newer = table.alias("newer")
    same = [newer.c[name] == value for name, value in key.items()]
    least = select(func.max(newer.c.version)).where(*same).scalar_subquery()
    # Not equal: another transaction may change the row before this one has it.
    here = (table.c[name] == value for name, value in key.items())
    return (*here, if_versions(table.c.version >= least))


def newest_of(
    table: Table,
    each: FromClause,
    magazine: Any,
    *,
    since: ColumnElement[int] | None = None,
    skip_locked: bool | None = None,
) -> FromClause:
    """
    Return the present rows of a table, for each shard of another table.

    *since*: a version that was seen before. With *skip_locked*, lock them, and leave out those that
    are locked; with False, wait for them.
    """
    here = (
        table.c.queue_id == each.c.queue_id,
        table.c.magazine == magazine,
        table.c.shard == each.c.shard,
    )
    query = select(table).where(*here).order_by(table.c.version.desc()).limit(1)
    if since is not None:
        query = query.where(table.c.version >= since)
    if skip_locked is not None:
        query = query.with_for_update(skip_locked=skip_locked)
    return query.lateral(table.name)


def side_by_side(
    where: ColumnElement[bool], magazine: Any, *, lock: bool = False
) -> tuple[FromClause, list[FromClause], FromClause]:
    """
    Return the present rows of the shards of some queues, side by side, and those of each table.

    One shard comes after the other: its newest rows are found by an index. *where*: which queues.
    With *lock*, wait for the lock of each shard, in their order. Conditions on the last table, of
    the columns ``queue_id`` and ``shard``, hold before a shard is looked at or locked.
    """
    of_queue = func.generate_series(0, queues.c.shards - 1).label("shard")
    found = select(queues.c.id.label("queue_id"), of_queue).where(where)
    each = (found.order_by(queues.c.id, of_queue) if lock else found).subquery("each")
    loads, counts = (newest_of(table, each, magazine) for table in (shards, counters))
    locks = newest_of(shard_locks, each, magazine, skip_locked=False if lock else None)
    source = each.join(loads, true()).join(counts, true()).join(locks, true())
    return source, [loads, locks, counts], each
