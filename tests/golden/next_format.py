"""The format after the present one, with a step as a later version would have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import sqlalchemy as sa

from queue_core import Store
from queue_core.catalog import format
from queue_core.values.address import Address

NEXT = format.FORMAT + 1


def _step(connection: sa.Connection) -> None:
    """Give the queues notes, and the store a table of them."""
    connection.exec_driver_sql("ALTER TABLE queues ADD COLUMN note TEXT")
    connection.exec_driver_sql("UPDATE queues SET note = 'of ' || name")
    connection.exec_driver_sql("CREATE TABLE notes (note TEXT NOT NULL)")
    connection.exec_driver_sql("INSERT INTO notes (note) SELECT note FROM queues")


def install() -> None:
    """Make this process one of the next version."""
    format.STEPS[format.FORMAT] = _step
    format.FORMAT = NEXT


@contextmanager
def next_version() -> Iterator[None]:
    """Make this process one of the next version until the end of the block."""
    with (
        mock.patch.object(format, "FORMAT", NEXT),
        mock.patch.dict(format.STEPS, {NEXT - 1: _step}),
    ):
        yield


def notes(store: Store) -> list[str]:
    """What the step has written."""
    with store.catalog.read() as connection:
        return list(connection.scalars(sa.text("SELECT note FROM queues")))


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
}
_SQLITE = {
    "tables": 'SELECT m.name, c.cid, c.name, c.type, c."notnull", c.dflt_value, c.pk '
    "FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'",
    "indexes": 'SELECT m.name, i.name, i."unique", i.origin, i.partial, c.seqno, c.name '
    "FROM sqlite_master AS m, pragma_index_list(m.name) AS i, pragma_index_info(i.name) AS c "
    "WHERE m.type = 'table'",
}
