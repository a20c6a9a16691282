"""Everything that SQLite and PostgreSQL do differently, each with the reason why."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Collection
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Select,
    String,
    Table,
    Text,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from queue_core.catalog.listeners import Listener, PostgresListener, SqliteListener
from queue_core.errors import (
    BadOption,
    CatalogUnavailable,
    Damaged,
    DamagedCatalog,
    IgnisError,
)

_SQLITE = "sqlite:///"
#: Seconds that SQLite waits for another process to commit.
BUSY_SECONDS = 60.0

#: How often a waiting writer looks whether a SQLite database is free: seconds, from and to.
_LOOK_SECONDS = (0.001, 0.005)

# SQLite's primary result codes: https://www.sqlite.org/rescode.html
_SQLITE_PRIMARY = 0xFF
_SQLITE_RETRY = {5, 6}
_SQLITE_DAMAGED = {11, 26}
_SQLITE_NO_TABLE = 1
_SQLITE_REASONS = {
    5: "is busy",
    6: "is locked",
    8: "is read-only; give this user the right to write the folder",
    10: "had an input/output error",
    13: "is on a full disk; free some room",
    14: "cannot be opened; check that the folder exists and can be written",
}
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_POSTGRES_RETRY = {"40001", "40P01", "55P03"}
_POSTGRES_DAMAGED = {"XX001", "XX002"}
_POSTGRES_NO_TABLE = {"42P01", "42703"}
# Names the lock of those who create tables: any number that others are unlikely to use.
_CREATING = 0x69676E6973
#: Names the lock of those who write reports.
REPORTING = 0x69676E6974
# Names, together with a queue's id, the lock of those who look for room in it.
_ROOM = 0x69676E69


def connect(url: str) -> Engine:
    """An engine for ``sqlite:///…`` or ``postgresql+psycopg://…``; raises `BadOption`."""
    if url.startswith(_SQLITE):
        return _connect_sqlite(url)
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise BadOption(f"catalog={_hidden(url)!r} is no database URL") from error
    family = parsed.get_backend_name()
    if family != "postgresql":
        raise BadOption(
            f"catalog={_hidden(url)!r}: use sqlite:///… or postgresql+psycopg://…, not {family}"
        )
    try:
        # AUTOCOMMIT is never used: each transaction is explicit. pre_ping finds dead connections.
        return create_engine(parsed, pool_pre_ping=True, pool_size=4, max_overflow=16)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise BadOption(
            f"catalog={_hidden(url)!r} needs a driver: pip install 'ignis-queue[postgres]'"
        ) from error


def is_sqlite(engine: Engine) -> bool:
    """Whether the catalog is one file, with one writer at a time."""
    return engine.dialect.name == "sqlite"


def begin(connection: Connection, *, write: bool) -> None:
    """Open a transaction that reads one state of the catalog, or that may write."""
    if connection.dialect.name == "sqlite":
        # SQLite has no row locks: a writer takes the database at once, or it could fail half-way
        # through when another one was faster.
        if write:
            _begin_immediate(connection)
        else:
            connection.exec_driver_sql("BEGIN")
    elif not write:
        # PostgreSQL would otherwise show each statement a newer state.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def notify(connection: Connection, channel: str) -> None:
    """Wake the listeners of *channel* when the transaction commits."""
    if connection.dialect.name == "postgresql":
        # SQLite numbers its commits by itself, and listeners watch that number.
        connection.execute(select(func.pg_notify(channel, "")))


def listen(engine: Engine, channel: str) -> Listener:
    """Return a new listener for commits, on a connection outside of the engine's pool."""
    connection = engine.raw_connection()
    driver = connection.driver_connection
    connection.detach()
    if is_sqlite(engine):
        return SqliteListener(driver)
    return PostgresListener(driver, channel)


class now(FunctionElement[int]):
    """The database's clock, in microseconds."""

    type = BigInteger()
    inherit_cache = True
    name = "now"


@compiles(now, "sqlite")
def _now_sqlite(*_: Any, **__: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000"


@compiles(now, "postgresql")
def _now_postgresql(*_: Any, **__: Any) -> str:
    # Not now(): that is when the transaction began.
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


def alone(connection: Connection) -> None:
    """Wait until no other transaction is past this point, and keep others from passing it."""
    if connection.dialect.name != "sqlite":
        # Two that create the same tables at once would fail, and not wait for each other.
        connection.execute(select(func.pg_advisory_xact_lock(_CREATING)))


def join_in(connection: Connection, what: int) -> None:
    """Do something until the transaction ends, side by side with others, as `is_alone` tells."""
    if connection.dialect.name != "sqlite":
        connection.execute(select(func.pg_advisory_xact_lock_shared(what)))


def is_alone(connection: Connection, what: int) -> bool:
    """Whether nobody does this now; then who begins to waits until the transaction ends."""
    if connection.dialect.name == "sqlite":
        # One transaction writes at a time, and a reader sees none of one that is open.
        return True
    return bool(connection.scalar(select(func.pg_try_advisory_xact_lock(what))))


def hold_room(connection: Connection, queue_id: int) -> None:
    """Wait until nobody else brings messages into a bounded queue, and keep others from it."""
    if connection.dialect.name != "sqlite":
        # What is counted before the commit must still be so at the commit; rows of the queue's own
        # are locked by its firings too, which need not wait.
        connection.execute(select(func.pg_advisory_xact_lock(_ROOM, queue_id)))


def skip_locked(connection: Connection, query: Select[Any], *of: Any) -> Select[Any]:
    """Lock what is selected, passing over what others hold."""
    if connection.dialect.name == "sqlite":
        # The transaction has the whole database.
        return query
    return query.with_for_update(skip_locked=True, of=of or None)


def locked(connection: Connection, query: Select[Any], *of: Any) -> Select[Any]:
    """Lock what is selected, waiting for others to let go."""
    if connection.dialect.name == "sqlite":
        return query
    return query.with_for_update(of=of or None)


def read_clock(connection: Connection) -> int:
    """Return the time by the database's clock, in microseconds since 1970."""
    return int(connection.scalar(select(now())) or 0)


def one_of(
    connection: Connection, column: Column[Any], values: Collection[int] | Collection[str]
) -> ColumnElement[bool]:
    """``column IN values`` for any number of integers or texts, in one parameter."""
    if connection.dialect.name == "sqlite":
        # SQLite bounds the number of parameters, and knows JSON but no arrays.
        each = func.json_each(bindparam(None, json.dumps(list(values)))).table_valued("value")
        return column.in_(select(each.c.value))
    kind = ARRAY(Text if isinstance(column.type, String) else BigInteger)
    array = cast(bindparam(None, list(values), type_=kind), kind)
    return column == func.any(array)


def greatest(connection: Connection, column: Column[Any], value: int) -> ColumnElement[int]:
    """The larger of a column and a value."""
    # The same function by another name.
    name = "max" if connection.dialect.name == "sqlite" else "greatest"
    return getattr(func, name)(column, value, type_=BigInteger)  # type: ignore[no-any-return]


def insert_new(connection: Connection, table: Any) -> Any:
    """An INSERT that may say ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    module = sqlite if connection.dialect.name == "sqlite" else postgresql
    return module.insert(table)


def last_id(connection: Connection, table: Table) -> int:
    """The highest id that the table has ever given out."""
    if connection.dialect.name == "sqlite":
        query = "SELECT seq FROM sqlite_sequence WHERE name = :name"
    else:
        query = "SELECT pg_sequence_last_value(pg_get_serial_sequence(:name, 'id')::regclass)"
    return int(connection.scalar(text(query), {"name": table.name}) or 0)


def rename_table(connection: Connection, old: str, new: str) -> None:
    """Rename a table, and all that the database has named after it but for its indexes."""
    connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")
    if connection.dialect.name == "sqlite":
        # The counter of its ids follows by itself, and its constraints have no names.
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"ALTER SEQUENCE IF EXISTS {old}_id_seq RENAME TO {new}_id_seq")
        _rename_constraints(connection, new, f"{old}_", f"{new}_")
        return
    raise _unknown(connection)


def rename_column(connection: Connection, table: str, old: str, new: str) -> None:
    """Rename a column, and all that the database has named after it."""
    connection.exec_driver_sql(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    if connection.dialect.name == "sqlite":
        return
    if connection.dialect.name == "postgresql":
        # Since version 18, NOT NULL is a constraint with a name.
        _rename_constraints(connection, table, f"{table}_{old}_", f"{table}_{new}_")
        return
    raise _unknown(connection)


def rename_index(connection: Connection, old: str, new: str, on: str) -> None:
    """Rename an index; *on* names its table and columns, ``table (a, b)``."""
    if connection.dialect.name == "sqlite":
        # SQLite renames no indexes.
        connection.exec_driver_sql(f"DROP INDEX {old}")
        connection.exec_driver_sql(f"CREATE INDEX {new} ON {on}")
    elif connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"ALTER INDEX {old} RENAME TO {new}")
    else:
        raise _unknown(connection)


def can_retry(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed when it is tried again."""
    code = _code(error)
    return code in _SQLITE_RETRY or code in _POSTGRES_RETRY


def lacks_name(error: DBAPIError) -> bool:
    """Whether a statement names a table or a column that the catalog does not have."""
    code = _code(error)
    return code == _SQLITE_NO_TABLE or code in _POSTGRES_NO_TABLE


def translated(error: DBAPIError, catalog: str, *, committing: bool = False) -> IgnisError:
    """
    Our error for one of the database's, told apart by its code, never by its text.

    *committing* says that it came of a commit, which may have been done all the same.
    """
    code = _code(error)
    kind: type[Damaged] | type[CatalogUnavailable] = CatalogUnavailable
    if code in _SQLITE_DAMAGED or code in _POSTGRES_DAMAGED:
        kind = DamagedCatalog
        reason = "is damaged or no catalog at all; restore it from a backup"
    elif lacks_name(error):
        kind = DamagedCatalog
        reason = f"lacks what it should have ({_told(error)}); restore it from a backup"
    else:
        reason = _SQLITE_REASONS.get(code, "") if isinstance(code, int) else ""
        reason = reason or f"failed ({_told(error)})"
    outcome = "nothing was changed"
    if error.connection_invalidated:
        outcome += "; try again later"
        if committing:
            outcome = "nobody knows if the last change was made: look before you make it again"
    return kind(f"catalog {_hidden(catalog)} {reason}; {outcome}")


def _rename_constraints(connection: Connection, table: str, old: str, new: str) -> None:
    """Give the constraints of a PostgreSQL table another prefix."""
    named = text(
        "SELECT conname FROM pg_constraint WHERE conrelid = CAST(:table AS regclass) "
        "AND starts_with(conname, :prefix)"
    )
    for name in connection.scalars(named, {"table": table, "prefix": old}).all():
        renamed = new + name.removeprefix(old)
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME CONSTRAINT {name} TO {renamed}")


def _unknown(connection: Connection) -> NotImplementedError:
    return NotImplementedError(f"a catalog in {connection.dialect.name}")


def _told(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())


def _begin_immediate(connection: Connection) -> None:
    """
    Take the database as soon as it is free, or fail after `BUSY_SECONDS`.

    SQLite itself would look ever more seldom, up to ten times a second: who has waited for long
    then finds that others were faster, and starves among many processes.
    """
    connection.begin()
    driver: Any = connection.connection.driver_connection
    driver.execute("PRAGMA busy_timeout = 0")
    end = time.monotonic() + BUSY_SECONDS
    try:
        while time.monotonic() < end:
            try:
                driver.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.Error as error:
                if error.sqlite_errorcode & _SQLITE_PRIMARY not in _SQLITE_RETRY:
                    break
            time.sleep(random.uniform(*_LOOK_SECONDS))
        # Once more, to fail as any statement does.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def _connect_sqlite(url: str) -> Engine:
    # Taken as it is, and not parsed: a folder may have any name.
    path = url.removeprefix(_SQLITE)
    if path in ("", ":memory:"):
        raise BadOption(f"catalog={url!r} is no file; use sqlite:////some/folder/catalog.db")
    engine = create_engine(
        URL.create("sqlite", database=path),
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        # The driver's own transaction handling would begin too late; ours is explicit.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        # With NORMAL a commit could be lost in a power failure.
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    return engine


def _code(error: DBAPIError) -> int | str | None:
    cause = error.orig
    number = getattr(cause, "sqlite_errorcode", None)
    if number is not None:
        return int(number) & _SQLITE_PRIMARY
    state = getattr(cause, "sqlstate", None)
    return str(state) if state else None


def _hidden(url: str) -> str:
    """The URL without its password."""
    if url.startswith(_SQLITE):
        return url
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url
