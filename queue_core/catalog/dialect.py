"""Everything that SQLite and PostgreSQL do differently, each with the reason why.

No other module asks which database it is. A function without a case for a database raises
`NotImplementedError`, so a new one fails loudly until each has its case.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Select,
    String,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from queue_core.address import masked, masked_query
from queue_core.catalog import postgres
from queue_core.catalog.listeners import Listener, PostgresListener, SqliteListener
from queue_core.catalog.tables import locks
from queue_core.errors import (
    BadOption,
    CatalogUnavailable,
    Damaged,
    DamagedCatalog,
    IgnisError,
)

_SQLITE = "sqlite:///"
#: Seconds to wait for another process to commit: for SQLite's file, or a lock of PostgreSQL.
BUSY_SECONDS = 60.0

#: The pause between two attempts of a writer to take a SQLite database: seconds, from and to.
_PAUSE_SECONDS = (0.001, 0.005)

# SQLite's primary result codes: https://www.sqlite.org/rescode.html
_SQLITE_PRIMARY = 0xFF
_SQLITE_RETRY = {5, 6}
_SQLITE_DAMAGED = {11, 26}
_SQLITE_NO_TABLE = 1
_SQLITE_IO_ERROR = 10
# The commit is not complete in its log, as after one on a full disk.
_SQLITE_WRITE_ERROR = 10 | 3 << 8
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
_POSTGRES_DUPLICATE = {"23505", "42P07", "42710"}
#: The lock for writing reports, shared among writers.
REPORTING = "task_log"
#: The lock for the room of a bounded queue.
ROOM = "room"
#: Where a lock of the whole store has a queue's id.
STORE = 0


def connect(url: str) -> Engine:
    """Return an engine for ``sqlite:///…`` or ``postgresql+psycopg://…``; raises `BadOption`."""
    if url.startswith(_SQLITE):
        return _connect_sqlite(url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # A port that is not a number is a ValueError, which quotes the whole of it.
        raise BadOption(f"catalog={hidden(url)!r} is not a database URL") from None
    family = parsed.get_backend_name()
    if family != "postgresql":
        raise BadOption(
            f"catalog={hidden(url)!r}: use sqlite:///… or postgresql+psycopg://…, not {family}"
        )
    try:
        # AUTOCOMMIT is never used: each transaction is explicit. pre_ping finds dead connections.
        engine = create_engine(parsed, pool_pre_ping=True, pool_size=4, max_overflow=16)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise BadOption(
            f"catalog={hidden(url)!r} needs a driver: pip install 'ignis-queue[postgres]'"
        ) from error
    postgres.bound_waits(engine, BUSY_SECONDS)
    return engine


def file_of(engine: Engine) -> Path | None:
    """Return the file that is the whole catalog; None where a server keeps it."""
    match engine.dialect.name:
        case "sqlite":
            return Path(engine.url.database or "")
        case "postgresql":
            return None
        case other:
            raise _unknown(other)


def shares_database(connection: Connection) -> bool:
    """Return whether the catalog's database may hold tables of other programs."""
    match connection.dialect.name:
        case "sqlite":
            return False
        case "postgresql":
            return True
        case other:
            raise _unknown(other)


def writes_in_parallel(engine: Engine) -> bool:
    """Return whether several transactions can write at the same time."""
    match engine.dialect.name:
        case "sqlite":
            return False
        case "postgresql":
            return True
        case other:
            raise _unknown(other)


def begin(connection: Connection, *, write: bool) -> None:
    """Open a transaction that reads one state of the catalog, or that may write."""
    match connection.dialect.name, write:
        case "sqlite", True:
            # SQLite has no row locks: a writer takes the database at once, or it could fail
            # half-way through because another one was faster.
            _begin_immediate(connection)
        case "sqlite", False:
            connection.exec_driver_sql("BEGIN")
        case "postgresql", True:
            # The driver begins one with the first statement.
            pass
        case "postgresql", False:
            # PostgreSQL would otherwise show each statement a newer state.
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        case other, _:
            raise _unknown(other)


def notify(connection: Connection, channel: str) -> None:
    """Wake the listeners of *channel* when the transaction commits."""
    match connection.dialect.name:
        case "sqlite":
            # SQLite numbers its commits by itself, and listeners watch that number.
            pass
        case "postgresql":
            connection.execute(select(func.pg_notify(channel, "")))
        case other:
            raise _unknown(other)


def listen(engine: Engine, channel: str) -> Listener:
    """Return a new listener for commits, on a connection outside of the engine's pool."""
    connection = engine.raw_connection()
    driver: Any = connection.driver_connection
    connection.detach()
    try:
        match engine.dialect.name:
            case "sqlite":
                return SqliteListener(driver)
            case "postgresql":
                return PostgresListener(driver, channel)
            case other:
                raise _unknown(other)
    except BaseException:
        # The pool does not know the connection any more, so nobody else would close it.
        driver.close()
        raise


class now(FunctionElement[int]):
    """The time by the database's clock, in microseconds since 1970."""

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


def read_clock(connection: Connection) -> int:
    """Return the time by the database's clock, in microseconds since 1970."""
    return int(connection.scalar(select(now())) or 0)


def place(connection: Connection) -> str:
    """Return a name for where the catalog is, which a copy of it does not have."""
    match connection.dialect.name:
        case "sqlite":
            return f"file {Path(connection.engine.url.database or '').stat().st_ino}"
        case "postgresql":
            # A standby that takes over keeps all three; a restored dump has another table.
            allowed = text("SELECT has_function_privilege('pg_control_system()', 'execute')")
            system = text("SELECT system_identifier FROM pg_control_system()")
            names = [str(connection.scalar(system))] if connection.scalar(allowed) else []
            oids = text(
                "SELECT concat_ws(' ', oid, CAST('facts' AS regclass)::oid) "
                "FROM pg_database WHERE datname = current_database()"
            )
            return " ".join(["database", *names, str(connection.scalar(oids))])
        case other:
            raise _unknown(other)


def create_alone(connection: Connection, table: Table) -> bool:
    """Create the first table; return False if another transaction created it meanwhile."""
    match connection.dialect.name:
        case "sqlite":
            # The transaction has the whole database.
            table.create(connection)
            return True
        case "postgresql":
            # Of two that create the same table at once, the second waits, and then fails.
            try:
                with connection.begin_nested():
                    table.create(connection, checkfirst=False)
            except DBAPIError as error:
                if _code(error) not in _POSTGRES_DUPLICATE:
                    raise
                return False
            return True
        case other:
            raise _unknown(other)


def share_lock(connection: Connection, lock: str) -> None:
    """Take a lock until the transaction ends, together with others; `try_lock` fails meanwhile."""
    match connection.dialect.name:
        case "sqlite":
            pass
        case "postgresql":
            _lock_row(connection, lock, STORE, shared=True)
        case other:
            raise _unknown(other)


def try_lock(connection: Connection, lock: str) -> bool:
    """
    Take a lock alone until the transaction ends; return False if a transaction shares it.

    On a database that writes in parallel it needs a transaction that may write.
    """
    match connection.dialect.name:
        case "sqlite":
            # One transaction writes at a time, and a reader sees nothing of one that is open.
            return True
        case "postgresql":
            query = select(locks.c.name).where(_is_lock(lock, STORE))
            return connection.scalar(query.with_for_update(skip_locked=True)) is not None
        case other:
            raise _unknown(other)


def lock_room(connection: Connection, queue_id: int) -> None:
    """Wait for other transactions that load into a bounded queue, and keep new ones waiting."""
    match connection.dialect.name:
        case "sqlite":
            pass
        case "postgresql":
            # The count before the commit must still be true at the commit. Rows of the queue would
            # not do: its firings lock them too, and need not wait.
            _lock_row(connection, ROOM, queue_id, shared=False)
        case other:
            raise _unknown(other)


def skip_locked(connection: Connection, query: Select[Any], *of: Any) -> Select[Any]:
    """Lock the selected rows, and pass over rows that other transactions have locked."""
    match connection.dialect.name:
        case "sqlite":
            # The transaction has the whole database.
            return query
        case "postgresql":
            return query.with_for_update(skip_locked=True, of=of or None)
        case other:
            raise _unknown(other)


def locked(connection: Connection, query: Select[Any], *of: Any) -> Select[Any]:
    """Lock the selected rows, and wait for other transactions that have locked them."""
    match connection.dialect.name:
        case "sqlite":
            return query
        case "postgresql":
            return query.with_for_update(of=of or None)
        case other:
            raise _unknown(other)


def one_of(
    connection: Connection, column: Column[Any], values: Collection[int] | Collection[str]
) -> ColumnElement[bool]:
    """Return ``column IN values`` for any number of integers or texts, in one parameter."""
    match connection.dialect.name:
        case "sqlite":
            # SQLite limits the number of parameters, and has JSON but no arrays.
            each = func.json_each(bindparam(None, json.dumps(list(values)))).table_valued("value")
            return column.in_(select(each.c.value))
        case "postgresql":
            # Not at the top: it takes a while to import, and stores on SQLite have no use for it.
            from sqlalchemy.dialects.postgresql import ARRAY

            kind = ARRAY(Text if isinstance(column.type, String) else BigInteger)
            array = cast(bindparam(None, list(values), type_=kind), kind)
            return column == func.any(array)
        case other:
            raise _unknown(other)


def greatest(connection: Connection, column: Column[Any], value: int) -> ColumnElement[int]:
    """Return the larger of a column and a value."""
    match connection.dialect.name:
        case "sqlite":
            return func.max(column, value, type_=BigInteger)
        case "postgresql":
            return func.greatest(column, value, type_=BigInteger)
        case other:
            raise _unknown(other)


def insert_new(connection: Connection, table: Any) -> Any:
    """Return an INSERT that has ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    match connection.dialect.name:
        case "sqlite":
            return sqlite.insert(table)
        case "postgresql":
            from sqlalchemy.dialects import postgresql

            return postgresql.insert(table)
        case other:
            raise _unknown(other)


def create_tables(connection: Connection, metadata: MetaData) -> None:
    """Create all tables. The *info* of an index may restrict it to rows, by the key "where"."""
    dialect = connection.dialect.name
    if dialect not in ("sqlite", "postgresql"):
        raise _unknown(dialect)
    # As an argument of the index, it would import all dialects that it names.
    for table in metadata.tables.values():
        for index in table.indexes:
            if "where" in index.info:
                index.dialect_options[dialect]["where"] = text(index.info["where"])
    metadata.create_all(connection)


def last_id(connection: Connection, table: Table) -> int:
    """Return the highest id that the table has ever given out."""
    match connection.dialect.name:
        case "sqlite":
            query = "SELECT seq FROM sqlite_sequence WHERE name = :name"
        case "postgresql":
            query = "SELECT pg_sequence_last_value(pg_get_serial_sequence(:name, 'id')::regclass)"
        case other:
            raise _unknown(other)
    return int(connection.scalar(text(query), {"name": table.name}) or 0)


def rename_table(connection: Connection, old: str, new: str) -> None:
    """Rename a table, and all that the database has named after it except its indexes."""
    connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")
    match connection.dialect.name:
        case "sqlite":
            # The counter of its ids follows by itself, and its constraints have no names.
            pass
        case "postgresql":
            connection.exec_driver_sql(
                f"ALTER SEQUENCE IF EXISTS {old}_id_seq RENAME TO {new}_id_seq"
            )
            _rename_constraints(connection, new, f"{old}_", f"{new}_")
        case other:
            raise _unknown(other)


def rename_column(connection: Connection, table: str, old: str, new: str) -> None:
    """Rename a column, and all that the database has named after it."""
    connection.exec_driver_sql(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    match connection.dialect.name:
        case "sqlite":
            pass
        case "postgresql":
            # Since version 18, NOT NULL is a constraint with a name.
            _rename_constraints(connection, table, f"{table}_{old}_", f"{table}_{new}_")
        case other:
            raise _unknown(other)


def rename_index(connection: Connection, old: str, new: str, on: str) -> None:
    """Rename an index; *on* names its table and columns, ``table (a, b)``."""
    match connection.dialect.name:
        case "sqlite":
            # SQLite cannot rename an index.
            connection.exec_driver_sql(f"DROP INDEX {old}")
            connection.exec_driver_sql(f"CREATE INDEX {new} ON {on}")
        case "postgresql":
            connection.exec_driver_sql(f"ALTER INDEX {old} RENAME TO {new}")
        case other:
            raise _unknown(other)


def can_retry(error: DBAPIError) -> bool:
    """Return whether the same transaction may succeed when it is tried again."""
    code = _code(error)
    return code in _SQLITE_RETRY or code in _POSTGRES_RETRY


def lacks_name(error: DBAPIError) -> bool:
    """Return whether a statement named a table or a column that the catalog does not have."""
    code = _code(error)
    return code == _SQLITE_NO_TABLE or code in _POSTGRES_NO_TABLE


def translated(error: DBAPIError, catalog: str, *, committing: bool = False) -> IgnisError:
    """
    Return our error for an error of the database, by its code and never by its text.

    *committing*: the error came from a commit, which may have succeeded all the same.
    """
    code = _code(error)
    kind: type[Damaged] | type[CatalogUnavailable] = CatalogUnavailable
    if code in _SQLITE_DAMAGED or code in _POSTGRES_DAMAGED:
        kind = DamagedCatalog
        reason = "is damaged or not a catalog; restore it from a backup"
    elif lacks_name(error):
        kind = DamagedCatalog
        reason = f"lacks a table or a column ({_message_of(error)}); restore it from a backup"
    else:
        reason = _SQLITE_REASONS.get(code, "") if isinstance(code, int) else ""
        reason = reason or f"failed ({_message_of(error)})"
    outcome = "nothing was changed"
    # After a failed fsync of a commit, a recovery may find its pages or not.
    failed_write = getattr(error.orig, "sqlite_errorcode", 0) == _SQLITE_WRITE_ERROR
    failed_sync = committing and code == _SQLITE_IO_ERROR and not failed_write
    unknown = failed_sync or (committing and error.connection_invalidated)
    if unknown:
        outcome = "the last change may have been made: check before you repeat it"
    elif error.connection_invalidated:
        outcome += "; try again later"
    found = kind(f"catalog {hidden(catalog)} {reason}; {outcome}")
    found.outcome_unknown = unknown
    return found


def _rename_constraints(connection: Connection, table: str, old: str, new: str) -> None:
    """Give the constraints of a PostgreSQL table another prefix."""
    named = text(
        "SELECT conname FROM pg_constraint WHERE conrelid = CAST(:table AS regclass) "
        "AND starts_with(conname, :prefix)"
    )
    for name in connection.scalars(named, {"table": table, "prefix": old}).all():
        renamed = new + name.removeprefix(old)
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME CONSTRAINT {name} TO {renamed}")


def _is_lock(name: str, queue_id: int) -> ColumnElement[bool]:
    return and_(locks.c.name == name, locks.c.queue_id == queue_id)


def _lock_row(connection: Connection, name: str, queue_id: int, *, shared: bool) -> None:
    """Lock a row of the table `locks`; make it if an older ignis made its queue."""
    query = select(locks.c.name).where(_is_lock(name, queue_id)).with_for_update(read=shared)
    if connection.scalar(query) is None:
        new = insert_new(connection, locks).values(name=name, queue_id=queue_id)
        connection.execute(new.on_conflict_do_nothing())
        connection.execute(query)


def _unknown(name: str) -> NotImplementedError:
    return NotImplementedError(f"a catalog in {name}: this function has no case for it")


def _message_of(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())


def _begin_immediate(connection: Connection) -> None:
    """
    Take the database as soon as it is free, or fail after `BUSY_SECONDS`.

    SQLite itself would try less and less often, down to ten times a second: a writer that has
    waited for long would lose to newer ones, and starve among many processes.
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
            time.sleep(random.uniform(*_PAUSE_SECONDS))
        # Once more, to fail as any statement does.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def _connect_sqlite(url: str) -> Engine:
    # The path is not parsed: a folder may have any name.
    path = url.removeprefix(_SQLITE)
    if path in ("", ":memory:"):
        raise BadOption(f"catalog={url!r} is not a file; use sqlite:////some/folder/catalog.db")
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


def hidden(url: str) -> str:
    """Return the URL without its secrets."""
    if url.startswith(_SQLITE):
        return url
    try:
        return masked_query(make_url(url).render_as_string(hide_password=True))
    except (ArgumentError, ValueError):
        return masked(url)
