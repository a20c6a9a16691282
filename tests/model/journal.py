"""A journal of every catalog transaction of a test, written by the database itself.

Triggers write each change of a slice, a consumer or a publication into a table, in the same
transaction. So a transaction that is rolled back leaves nothing, whoever made it and however its
process died. Per row the order is that of the commits, since a later writer waits for the earlier.
PostgreSQL numbers its transactions; on SQLite, which has one writer at a time, the processes of
tests write a mark before each commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Engine, event, inspect, text

from queue_core import Store

#: The columns that the model knows.
COLUMNS = {
    "slices": (
        *("id", "queue_id", "magazine", "shard", "state", "position", "segment_id"),
        *("row_start", "row_stop", "bitmap", "attempts", "consumer_id", "ticket"),
    ),
    "shard_locks": ("queue_id", "magazine", "shard", "log_of", "cursor"),
    "queues": ("id", "snapshot_of"),
    "consumers": ("id", "epoch", "last_ticket", "acknowledged"),
    "publications": ("queue_id", "query_id", "batch_id"),
    "id_map": ("segment_id", "queue_id"),
}
_MARK = "commit"


@dataclass(frozen=True)
class Change:
    """A row before and after a statement; None: there was none, or there is none."""

    table: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass
class Transaction:
    """One event: the changes of a transaction, in order."""

    number: int
    changes: list[Change] = field(default_factory=list)


def install(store: Store) -> None:
    """Begin the journal of a store; once is enough."""
    engine = store.catalog.engine
    if inspect(engine).has_table("journal"):
        return
    statements = _sqlite() if engine.dialect.name == "sqlite" else _postgresql()
    for statement in statements:
        store.catalog.write(partial(_execute, statement))


def _execute(statement: str, connection: Connection) -> None:
    connection.exec_driver_sql(statement).close()


def read(store: Store) -> Iterator[Transaction]:
    """Return the transactions since the journal began, in the order of their commits."""
    with store.catalog.read() as connection:
        rows = connection.execute(text("SELECT * FROM journal ORDER BY id")).all()
    if store.catalog.engine.dialect.name == "sqlite":
        numbered, number = [], 0
        for row in rows:
            number += row.kind == _MARK
            numbered.append((number, row))
    else:
        # By the last row of each: whoever depends on another one has waited for it.
        last = {row.transaction: row.id for row in rows}
        numbered = sorted(
            ((last[row.transaction], row) for row in rows), key=lambda pair: (pair[0], pair[1].id)
        )
    for number, group in groupby(numbered, key=lambda pair: pair[0]):
        changes = [
            Change(row.kind, _loaded(row.before), _loaded(row.after))
            for _, row in group
            if row.kind != _MARK
        ]
        if changes:
            yield Transaction(number, changes)


def _loaded(value: str | None) -> dict[str, Any] | None:
    return None if value is None else json.loads(value)


def _sqlite() -> Iterator[str]:
    yield (
        "CREATE TABLE journal (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,"
        " before TEXT, after TEXT)"
    )
    for table, columns in COLUMNS.items():
        for verb, old, new in (("INSERT", 0, 1), ("UPDATE", 1, 1), ("DELETE", 1, 0)):
            before, after = (
                f"json_object({', '.join(_sqlite_pair(row, c) for c in columns)})"
                if has
                else "NULL"
                for row, has in (("OLD", old), ("NEW", new))
            )
            yield (
                f"CREATE TRIGGER journal_{table}_{verb.lower()} AFTER {verb} ON {table} BEGIN "
                f"INSERT INTO journal (kind, before, after) VALUES ('{table}', {before}, {after}); "
                "END"
            )


def _sqlite_pair(row: str, column: str) -> str:
    value = f"hex({row}.{column})" if column == "bitmap" else f"{row}.{column}"
    return f"'{column}', {value}"


def _postgresql() -> Iterator[str]:
    yield (
        "CREATE TABLE journal (id BIGSERIAL PRIMARY KEY, kind TEXT NOT NULL, before TEXT,"
        " after TEXT, transaction BIGINT NOT NULL DEFAULT txid_current())"
    )
    for table, columns in COLUMNS.items():
        old, new = (
            "json_build_object("
            + ", ".join(
                f"'{c}', upper(encode({row}.{c}, 'hex'))" if c == "bitmap" else f"'{c}', {row}.{c}"
                for c in columns
            )
            + ")::text"
            for row in ("OLD", "NEW")
        )
        yield (
            f"CREATE FUNCTION journal_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "INSERT INTO journal (kind, before, after) VALUES ("
            f"'{table}', CASE WHEN TG_OP <> 'INSERT' THEN {old} END, "
            f"CASE WHEN TG_OP <> 'DELETE' THEN {new} END); RETURN NULL; END $$"
        )
        yield (
            f"CREATE TRIGGER journal_{table} AFTER INSERT OR UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION journal_{table}()"
        )


def _mark(connection: Connection) -> None:
    """Divide transactions on SQLite: before a commit that follows a change."""
    if connection.dialect.name != "sqlite":
        return
    there = connection.exec_driver_sql(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'journal'"
    ).first()
    if there is None:
        return
    last = connection.exec_driver_sql("SELECT kind FROM journal ORDER BY id DESC LIMIT 1").scalar()
    if last is not None and last != _MARK:
        connection.exec_driver_sql(f"INSERT INTO journal (kind) VALUES ('{_MARK}')")


def follow() -> None:
    """From now on write marks in this process, which is a child of a test."""
    event.listen(Engine, "commit", _mark)


@contextmanager
def marks() -> Iterator[None]:
    """Write marks in this process for a while."""
    follow()
    try:
        yield
    finally:
        event.remove(Engine, "commit", _mark)
