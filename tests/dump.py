"""All that a store holds, to tell whether something has changed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, func, literal, select, update

from queue_core import Store
from queue_core.catalog import dialect, seals
from queue_core.catalog.slices.log_merging import MINUTE
from queue_core.catalog.tables import log_slices, metadata, queues, slices


def dump(store: Store) -> dict[str, Any]:
    """Every row of every table, and every file of the storage."""
    with store.catalog.read() as connection:
        tables = {
            table.name: sorted(map(repr, connection.execute(select(table))))
            for table in metadata.sorted_tables
        }
    return tables | {"storage": store.storage.list(), "reports": store.storage.damage_reports()}


def rows_in(store: Store, table: Table, *where: ColumnElement[bool]) -> int:
    """How many rows a table has that meet some conditions."""
    with store.catalog.read() as connection:
        query = select(func.count()).select_from(table).where(*where)
        return int(connection.scalar(query) or 0)


def backdate(store: Store, seconds: float, *names: str) -> None:
    """Let messages have been fired, or have other times of their slices, *seconds* earlier."""
    times = names or ("fired_at",)
    store.catalog.write(lambda connection: _set_back(connection, slices, times, seconds))


def load_earlier(store: Store, seconds: float) -> None:
    """Let all messages have been loaded *seconds* earlier."""
    times = ("loaded_at", "moved_at")
    store.catalog.write(lambda connection: _set_back(connection, slices, times, seconds))


def log_earlier(store: Store, seconds: float, *names: str) -> None:
    """Let all messages of logs have been logged, or have other times, *seconds* earlier."""
    times = names or ("logged_at",)
    store.catalog.write(lambda connection: _set_back(connection, log_slices, times, seconds))


def log_in_a_minute(store: Store, ago: int = 5) -> None:
    """Let all messages that were logged within the last minutes be of one minute, earlier."""

    def set_all(connection: Connection) -> None:
        now = dialect.read_clock(connection)
        at = (now // MINUTE - ago) * MINUTE
        times = at + log_slices.c.first_offset % MINUTE
        set_time(connection, log_slices, "logged_at", times, log_slices.c.logged_at >= at)

    store.catalog.write(set_all)


def load_together(store: Store) -> None:
    """Let all messages have been loaded in one moment."""

    def set_all(connection: Connection) -> None:
        first = connection.scalar(select(func.min(slices.c.loaded_at)))
        set_time(connection, slices, "loaded_at", literal(first))

    store.catalog.write(set_all)


def age(store: Store, seconds: float) -> None:
    """Let every queue have been created, moved in its log, and deactivated *seconds* earlier."""

    def set_all(connection: Connection) -> None:
        _set_back(connection, queues, ("created_at", "deactivated_at"), seconds)
        moved = queues.c.ends_at + int(seconds * 1e6)
        set_time(connection, queues, "ends_at", moved, queues.c.ends_at < 0)

    store.catalog.write(set_all)


def _set_back(connection: Connection, table: Table, names: tuple[str, ...], seconds: float) -> None:
    """Change times and the seals of their rows, so that fsck finds no damage."""
    for name in names:
        set_time(connection, table, name, table.c[name] - int(seconds * 1e6))


def set_time(
    connection: Connection,
    table: Table,
    name: str,
    time: ColumnElement[int],
    where: ColumnElement[bool] | None = None,
) -> None:
    gain = (time % seals.PRIME) * seals.weight(table, name)
    connection.execute(
        update(table)
        .where(table.c[name].is_not(None) if where is None else where)
        .values({name: time, "seal": seals.resealing(table, (name,), gain)})
    )
