"""Catalogs of format 1: the golden one, on either database, and new ones that are turned back."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from queue_core import Store
from queue_core.catalog import dialect, sql_views
from queue_core.catalog.seals import SEALED
from queue_core.values.address import Address
from tests.golden.make import HERE, folder_of

#: The statements that made a catalog of format 1 on PostgreSQL.
DDL = HERE / "postgresql" / "format-1.sql"


def golden_store(catalog_url: str, folder: Path) -> Address:
    """Make a copy of the golden store of format 1, with its catalog in an empty database."""
    shutil.copytree(folder_of(1), folder)
    if catalog_url.startswith("postgresql"):
        (folder / "catalog.db").unlink()
        _copy_rows(folder_of(1) / "catalog.db", catalog_url)
    return Address(catalog_url, str(folder))


def turn_back(store: Store) -> None:
    """Give a catalog of format 2 the tables of format 1."""
    store.catalog.write(_turn_back)


def schema_of(address: Address) -> dict[str, Any]:
    """All names and definitions in a catalog that the database itself knows."""
    engine = sa.create_engine(address.catalog, poolclass=sa.NullPool)
    queries = _POSTGRES if engine.dialect.name == "postgresql" else _SQLITE
    with engine.connect() as connection:
        return {
            name: sorted(map(repr, connection.execute(sa.text(query))))
            for name, query in queries.items()
        }


def format_of(address: Address) -> str:
    """The format that a catalog says it has."""
    engine = sa.create_engine(address.catalog, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return str(connection.scalar(sa.text("SELECT value FROM facts WHERE name = 'format'")))


_POSTGRES = {
    "relations": "SELECT relname, relkind FROM pg_class "
    "WHERE relnamespace = 'public'::regnamespace",
    "columns": "SELECT table_name, column_name, ordinal_position, data_type, is_nullable, "
    "column_default FROM information_schema.columns WHERE table_schema = 'public'",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "constraints": "SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) "
    "FROM pg_constraint WHERE connamespace = 'public'::regnamespace",
    "sequences": "SELECT table_name, pg_get_serial_sequence(table_name, column_name) "
    "FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'id'",
}
_SQLITE = {
    "tables": 'SELECT m.name, c.cid, c.name, c.type, c."notnull", c.dflt_value, c.pk '
    "FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'",
    "indexes": 'SELECT m.name, i.name, i."unique", i.origin, i.partial, c.seqno, c.name '
    "FROM sqlite_master AS m, pragma_index_list(m.name) AS i, pragma_index_info(i.name) AS c "
    "WHERE m.type = 'table'",
    "numbered": "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'",
}


def _turn_back(connection: sa.Connection) -> None:
    sql_views.drop(connection)
    for table in SEALED:
        connection.exec_driver_sql(f"ALTER TABLE {table.name} DROP COLUMN seal")
    connection.exec_driver_sql("DROP TABLE locks")
    connection.exec_driver_sql("DROP TABLE clocks")
    connection.exec_driver_sql("DROP TABLE jobs")
    connection.exec_driver_sql("DROP TABLE breakers")
    connection.exec_driver_sql("DROP TABLE samples")
    connection.exec_driver_sql("DROP TABLE allotments")
    connection.exec_driver_sql("DROP TABLE lanes")
    connection.exec_driver_sql("DROP TABLE dedup")
    _keys_of_loads().create(connection)
    dialect.of(connection).rename_column(connection, "waiters", "verb", "side")
    dialect.of(connection).rename_column(connection, "task_log", "done_at", "at")
    for new, old in (("waiters", "lines"), ("task_log", "reports"), ("id_map", "compactions")):
        dialect.of(connection).rename_table(connection, new, old)
    for new, old, on in (
        ("waiters_in_order", "lines_in_order", "lines (queue_id, side, id)"),
        ("task_log_of_task", "reports_of_task", "reports (task, id)"),
        ("id_map_by_ids", "compactions_by_ids", "compactions (queue_id, last_id)"),
    ):
        dialect.of(connection).rename_index(connection, new, old, on)
    connection.exec_driver_sql("DROP INDEX slices_due")
    connection.exec_driver_sql("DROP INDEX slices_by_rank")
    connection.exec_driver_sql("DROP INDEX slices_lost")
    for table, column in (
        ("publications", "content"),
        ("consumers", "ack"),
        ("consumers", "sweepable"),
        ("queues", "paused_at"),
        ("slices", "due_at"),
        ("slices", "rank"),
        ("slices", "pace"),
        ("slices", "lost"),
        ("slices", "lost_among"),
    ):
        connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.exec_driver_sql("UPDATE facts SET value = '1' WHERE name = 'format'")


def _keys_of_loads() -> sa.Table:
    """One row per load, with an Arrow table of its keys."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Table(
        "dedup",
        sa.MetaData(),
        sa.Column("id", number, primary_key=True, autoincrement=True),
        sa.Column("queue_id", sa.BigInteger, nullable=False),
        sa.Column("loaded_at", sa.BigInteger, nullable=False),
        sa.Column("known_until", sa.BigInteger, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("arrow", sa.LargeBinary, nullable=False),
        sa.Index("dedup_of_queue", "queue_id", "loaded_at"),
        sqlite_autoincrement=True,
    )


def _copy_rows(file: Path, url: str) -> None:
    source = sa.create_engine(f"sqlite:///file:{file}?mode=ro&immutable=1&uri=true")
    target = sa.create_engine(url, poolclass=sa.NullPool)
    tables = sa.MetaData()
    with source.connect() as old, target.begin() as new:
        new.exec_driver_sql(DDL.read_text())
        tables.reflect(new)
        for table in tables.sorted_tables:
            if rows := old.execute(sa.select(table)).mappings().all():
                new.execute(table.insert(), [dict(row) for row in rows])
            if "id" in table.c:
                new.execute(
                    sa.text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :last)"),
                    {"name": table.name, "last": _last_id(file, table.name)},
                )
    source.dispose()


def _last_id(file: Path, table: str) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as connection:
        (last,) = connection.execute(
            f"SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 1), "
            f"coalesce((SELECT max(id) FROM {table}), 1))"
        ).fetchone()
    return int(last)
