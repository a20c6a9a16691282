"""Catalogs in SQLite: one file, one writer at a time, and a number of the last notification."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    MetaData,
    Select,
    String,
    Table,
    bindparam,
    create_engine,
    event,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles

from queue_core.catalog.databases import sqlite_driver
from queue_core.catalog.databases.ear import Ear, ear_of
from queue_core.catalog.databases.error_codes import ErrorCodes
from queue_core.catalog.databases.expressions import OneOf, each_of, if_versions, not_indexed, now
from queue_core.catalog.databases.interface import Dialect, LentConnection, QueueIds, detached
from queue_core.catalog.databases.taking import PAUSE_SECONDS, when_free
from queue_core.catalog.databases.touches import Touches, touch
from queue_core.errors import BadOption, CatalogUnavailable, Conflict

_PREFIX = "sqlite:///"
#: Seconds between two readings of the number of the last commit. A reading is far cheaper than a
#: transaction, and the pause too short to be noticed.
GLANCE_SECONDS = 0.02
#: The same where the kernel tells of the touches of other processes: only transactions of callers
#: and an ignis before this one touch nothing.
TOUCHED_GLANCE_SECONDS = 0.05
#: Steps of a statement after which it asks whether to go on: some 10 milliseconds.
_STEPS = 1_000_000

_CREATE_NOTIFIED = """
    CREATE TABLE IF NOT EXISTS notified (queue_id INTEGER PRIMARY KEY, number INTEGER NOT NULL)
"""
_COUNT_NOTIFIED = """
    INSERT INTO notified (queue_id, number) SELECT value, 1 FROM json_each(?) WHERE true
    ON CONFLICT (queue_id) DO UPDATE SET number = number + 1
    RETURNING (SELECT user_version FROM pragma_user_version)
"""
_READ_NOTIFIED = """
    SELECT queue_id, number FROM notified WHERE queue_id IN (SELECT value FROM json_each(?))
    ORDER BY queue_id
"""
#: Built once: a text is searched for parameters each time that it is made.
_LAST_ID = text("SELECT seq FROM sqlite_sequence WHERE name = :name")
_TEXT = String()
#: Changes nothing, but takes the database as any statement that may change it.
_TAKE = "DELETE FROM sqlite_sequence WHERE 0"
#: Where a connection notes that its transaction does not have the database yet.
_LATE = "ignis_late"
#: Where a connection notes how long its next transaction may wait for the database.
_SECONDS = "ignis_seconds"

# Primary result codes are in the last byte: https://www.sqlite.org/rescode.html
_PRIMARY = 0xFF
_IO_ERROR = 10
_READ_ONLY = 8
# The commit is not complete in its log, as after one on a full disk.
_WRITE_ERROR = 10 | 3 << 8
# A full disk, a quota, and no room for the files of a first connection.
_NO_ROOM = {13, _WRITE_ERROR, 10 | 18 << 8, 10 | 19 << 8, 14}


@compiles(now, "sqlite")
def _now(*_: Any, **__: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000"


@compiles(OneOf, "sqlite")
def _one_of(element: OneOf, compiler: Any, **options: Any) -> str:
    column = compiler.process(element.column, **options)
    values = compiler.process(element.values, **options)
    return f"{column} IN (SELECT value FROM json_each({values}))"  # noqa: S608 - compiled parts


@compiles(each_of, "sqlite")
def _each_of(element: each_of, compiler: Any, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(not_indexed, "sqlite")
def _not_indexed(element: not_indexed, compiler: Any, **options: Any) -> str:
    # SQLite's documented way to keep a column from an index.
    return f"+{compiler.process(element.clauses, **options)}"


@compiles(if_versions, "sqlite")
def _always(*_: Any, **__: Any) -> str:
    return "1"


def _code_of(error: DBAPIError) -> int | None:
    number = getattr(error.orig, "sqlite_errorcode", None)
    return None if number is None else int(number) & _PRIMARY


def _is_unsure(error: DBAPIError) -> bool:
    # After a failed fsync of a commit, a recovery may find its pages or not.
    number = getattr(error.orig, "sqlite_errorcode", 0)
    return number & _PRIMARY == _IO_ERROR and number != _WRITE_ERROR


class Sqlite(Dialect):
    """Catalogs in SQLite. The one transaction that writes has the whole database."""

    name = "sqlite"
    writes_in_parallel = False
    # Each writer that waits tries again within it.
    gap_seconds = 1.2 * PAUSE_SECONDS[1]
    errors = ErrorCodes(
        code_of=_code_of,
        retry={5, 6},
        damaged={11, 26},
        no_name={1},
        read_only={_READ_ONLY},
        reasons={
            5: "is busy",
            6: "is locked",
            8: "is read-only; give this user the right to write the folder",
            10: "had an input/output error",
            13: "is on a full disk; free some room, such as by: ignis vacuum --grace 0",
            14: "cannot be opened; check that the folder exists and can be written",
        },
        is_unsure=_is_unsure,
        has_no_room=lambda error: getattr(error.orig, "sqlite_errorcode", 0) in _NO_ROOM,
    )

    def connect(self, url: str, shown: str, idle: int) -> Engine:
        """Return an engine for ``sqlite:///file``."""
        # The path is not parsed: a folder may have any name.
        path = url.removeprefix(_PREFIX)
        if path in ("", ":memory:", url):
            raise BadOption(
                f"catalog={shown!r} is not a file; use sqlite:////some/folder/catalog.db"
            )
        engine = create_engine(
            URL.create("sqlite", database=path),
            connect_args={
                "timeout": self.busy_seconds,
                "check_same_thread": False,
                "factory": sqlite_driver.Driver,
            },
        )
        sqlite_driver.close_before_forks(engine)

        # A connection never makes the file: that of a store that was removed would be empty.
        file = f"file:{quote(os.fsencode(os.path.abspath(path)))}?mode=rw"

        @event.listens_for(engine, "do_connect")
        def find(_: Any, __: Any, arguments: list[str], options: dict[str, Any]) -> None:
            sqlite_driver.check_own(path)
            # Older versions of SQLAlchemy give the same list to each connection.
            arguments[0] = file
            options["uri"] = True

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _: Any) -> None:
            # The driver's own transaction handling would begin too late; ours is explicit.
            connection.isolation_level = None
            cursor = connection.cursor()
            # In a new file, it fails at once while another process writes.
            when_free(cursor, path, "PRAGMA journal_mode=WAL", self.busy_seconds)
            # With NORMAL a commit could be lost in a power failure.
            cursor.execute("PRAGMA synchronous=FULL")
            cursor.close()

        return engine

    def file_of(self, engine: Engine) -> Path | None:
        """Return the database's file."""
        return Path(engine.url.database or "")

    def create_tables(self, connection: Connection, metadata: MetaData, but: Table) -> None:
        """Create all tables. The *info* of a table may store its rows in order of the key."""
        for table in metadata.tables.values():
            if table.info.get("by_key"):
                table.dialect_options[self.name]["with_rowid"] = False
        super().create_tables(connection, metadata, but)

    def as_time(self, micros: ColumnElement[int]) -> ColumnElement[Any]:
        """Return a text, as SQLite's own functions do."""
        return func.strftime("%Y-%m-%d %H:%M:%S", micros // 1_000_000, "unixepoch")

    def place(self, connection: Connection, table: Table) -> str:
        """Return the number of the file's inode."""
        return f"file {Path(connection.engine.url.database or '').stat().st_ino}"

    def begin(
        self, connection: Connection, *, write: bool, late: bool = False, apart: bool = False
    ) -> None:
        """Open a transaction."""
        if not write:
            connection.exec_driver_sql("BEGIN")
            return
        info = connection.info
        info[_LATE] = late
        # There are no row locks: a writer takes the database at once, or it could fail half-way
        # through because another one was faster.
        self._begin_immediate(connection, info.pop(_SECONDS, self.busy_seconds))
        if late:
            # Begin right after the others: it fails if one of them commits while it reads.
            driver: Any = connection.connection.driver_connection
            driver.execute("ROLLBACK")
            driver.execute("BEGIN")
        else:
            self._check_log(connection)

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """Limit the wait for the database."""
        connection.info[_SECONDS] = seconds

    def take(self, connection: Connection) -> None:
        """Take the database, which works only if nobody has written since the first statement."""
        if connection.info.get(_LATE):
            connection.exec_driver_sql(_TAKE)
            connection.info[_LATE] = False
            self._check_log(connection)

    def _begin_immediate(self, connection: Connection, seconds: float) -> None:
        """Take the database as soon as it is free, or fail after some seconds."""
        connection.begin()
        driver: Any = connection.connection.driver_connection
        path = str(connection.engine.url.database)
        try:
            driver.execute("PRAGMA busy_timeout = 0")
            when_free(driver, path, "BEGIN IMMEDIATE", seconds)
        except sqlite3.Error:
            # Once more, to fail as any statement does.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        finally:
            driver.execute(f"PRAGMA busy_timeout = {self.busy_seconds * 1000:.0f}")

    def _check_log(self, connection: Connection) -> None:
        """
        Raise `CatalogUnavailable` if the log that this connection has open is gone.

        A log lives as long as any connection. If it was removed, as by a person who restores a copy
        of the database, this connection would write into a file that no other process can see.
        """
        log = f"{connection.engine.url.database}-wal"
        try:
            inode = os.stat(log).st_ino
        except FileNotFoundError:
            inode = None
        known = connection.connection.info.setdefault("log", inode)
        if known != inode:
            connection.invalidate()
            raise CatalogUnavailable(
                f"catalog {connection.engine.url.database} was replaced while this process had it "
                "open; nothing was changed. End all processes that have used the store, Spark "
                "applications too, before you replace its files; then run `ignis fsck`"
            )

    def shrink_log(self, connection: Connection) -> None:
        """Write the log back into the database and truncate it, unless others keep reading it."""
        connection.exec_driver_sql("PRAGMA busy_timeout = 1000")
        try:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {self.busy_seconds * 1000:.0f}")

    def notify(self, connection: Connection, queue_ids: Collection[int]) -> None:
        """
        Count up the numbers that listeners watch.

        SQLite keeps that of the catalog in the file's header. Those of queues are in a table that
        is not part of the format: whoever finds none makes it, and a backup leaves it out.
        """
        these = (json.dumps([*queue_ids]),)
        try:
            rows = connection.exec_driver_sql(_COUNT_NOTIFIED, these).all()
        except DBAPIError as error:
            if not self.errors.lacks_name(error):
                raise
            # The first one in this catalog. Nothing was written, and the transaction goes on.
            connection.exec_driver_sql(_CREATE_NOTIFIED)
            rows = connection.exec_driver_sql(_COUNT_NOTIFIED, these).all()
        # A PRAGMA takes no parameters. The number has 32 bits and a sign.
        number = (rows[0][0] + 1) & 0x7FFFFFFF
        connection.exec_driver_sql(f"PRAGMA user_version = {number}")

    def notify_committed(self, connection: Connection, queue_ids: Collection[int]) -> None:
        """Touch the file, so that the listeners look at their numbers."""
        touch(str(connection.engine.url.database))

    def listen(self, engine: Engine, queue_ids: QueueIds) -> SqliteListener:
        """Return a listener that watches the number of the last notification."""
        driver = detached(engine)
        try:
            listener = SqliteListener(driver, queue_ids)
            with suppress(OSError):
                listener.hear_by(ear_of(engine), str(engine.url.database))
            return listener
        except BaseException:
            # The pool no longer knows the connection, so this must close it.
            driver.close()
            raise

    def lend(self, driver: Any) -> LentConnection:
        """Cover a connection of `sqlite3`."""
        if not isinstance(driver, sqlite3.Connection):
            raise BadOption(
                f"connection is one of {type(driver).__module__}: the catalog is in SQLite, so use "
                "sqlite3, or SQLAlchemy with its driver"
            )
        try:
            driver.cursor().close()
        except sqlite3.ProgrammingError as error:
            raise BadOption(
                f"connection cannot be used ({error}): pass one that is open, in the thread that "
                "has made it"
            ) from error
        if driver.text_factory is not str:
            raise BadOption("connection has another text_factory than str; use another connection")

        def cursor() -> sqlite3.Cursor:
            made = driver.cursor()
            made.row_factory = None
            return made

        return LentConnection(driver, cursor)

    def join(self, driver: Any) -> None:
        """Begin a transaction that writes; the driver would begin one with the first change."""
        if driver.in_transaction:
            return
        if driver.isolation_level is None:
            raise BadOption(
                "connection has no transaction, and would commit each statement by itself: begin "
                "one first (BEGIN IMMEDIATE)"
            )
        try:
            # A transaction that reads first could fail later, because others were faster.
            driver.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY == _READ_ONLY:
                raise BadOption(
                    f"connection is read-only ({error}); nothing was changed: pass one that may "
                    "write"
                ) from error
            raise Conflict(
                f"other processes write to the database of connection ({error}); nothing was "
                "changed: run your transaction again, or connect with a longer timeout"
            ) from error

    def in_transaction(self, driver: Any) -> bool:
        """Return whether a transaction is open."""
        return bool(driver.in_transaction)

    def abort(self, driver: Any, engine: Engine) -> None:
        """
        Roll back, and refuse later changes, each of which would be a transaction of its own.

        A statement of its thread ends when it asks (`let_abort`). The thread then closes it.
        """
        # Unless SQLite was built for it, two threads may not use a connection at once.
        if sqlite3.threadsafety == 3:
            with suppress(sqlite3.Error):
                driver.execute("PRAGMA query_only = ON")
                driver.rollback()

    def let_abort(self, engine: Engine, is_aborted: Callable[[], bool]) -> None:
        """Let long statements ask whether to end; an interrupt would last until all have ended."""

        @event.listens_for(engine, "connect")
        def watch(driver: Any, _: Any) -> None:
            driver.set_progress_handler(is_aborted, _STEPS)

    def shown(self, driver: Any) -> str:
        """Return the path of the database's file."""
        return _main_file(driver.execute("PRAGMA database_list").fetchall()) or "memory"

    def whereabouts(self, connection: Connection, table: Table) -> str:
        """Return the device and the inode of the main database's file."""
        # An attached database does not commit together with the main one.
        path = _main_file(connection.exec_driver_sql("PRAGMA database_list").all())
        if not path:
            return "memory"
        found = os.stat(path)
        return f"{found.st_dev} {found.st_ino}"

    def sees_commits(self, connection: Connection) -> bool:
        """Return True: the transaction has the whole database."""
        return True

    def first_of_each(
        self,
        table: Table,
        key: Sequence[Column[Any]],
        where: Sequence[ColumnElement[bool]],
        order: Column[Any],
        limit: str,
        *,
        skip_locked: bool,
    ) -> Select[Any]:
        """Find the ids of one key after the other: SQLite has no LATERAL."""
        given = bindparam("given_rows", type_=_TEXT)
        each = func.json_each(given).table_valued("value", name="keys")
        *of_key, least = (
            func.json_extract(each.c.value, literal_column(f"'$[{at}]'"))
            for at in range(len(key) + 1)
        )
        here = [column == value for column, value in zip(key, of_key, strict=True)]
        here.append(order >= least)
        most = bindparam(limit, type_=BigInteger)
        first = select(table.c.id).where(*where, *here).order_by(order).limit(most)
        found = table.alias("found")
        among = found.c.id.in_(first.correlate(each))
        return select(found).select_from(each.join(found, among))

    def rows_of(self, names: Sequence[str]) -> FromClause:
        """Unpack a JSON list of lists."""
        given = bindparam("given_rows", type_=String)
        each = func.json_each(given).table_valued("value", name="each")
        of_row = (
            func.json_extract(each.c.value, literal_column(f"'$[{at}]'"), type_=BigInteger)
            for at in range(len(names))
        )
        named = (column.label(name) for column, name in zip(of_row, names, strict=True))
        return select(*named).subquery("given")

    def given_rows(self, columns: Mapping[str, Sequence[int | None]]) -> dict[str, Any]:
        """Return a JSON list of lists."""
        return {"given_rows": json.dumps(list(zip(*columns.values(), strict=True)))}

    def insert_new(self, table: Any) -> Any:
        """Return SQLite's INSERT."""
        return sqlite.insert(table)

    def last_id(self, connection: Connection, table: Table) -> int:
        """Read the counter of an AUTOINCREMENT column."""
        return int(connection.scalar(_LAST_ID, {"name": table.name}) or 0)

    def raise_ids(self, connection: Connection, table: Table, last: int) -> None:
        """Set the counter of an AUTOINCREMENT column; others follow their highest id."""
        if table.dialect_options["sqlite"]["autoincrement"]:
            last = max(last, self.last_id(connection, table))
            forget = text("DELETE FROM sqlite_sequence WHERE name = :name")
            remember = text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :last)")
            connection.execute(forget, {"name": table.name})
            connection.execute(remember, {"name": table.name, "last": last})

    def lock_tables(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Do nothing: the transaction has the whole database."""

    def create_alone(self, connection: Connection, table: Table) -> bool:
        """Create the table: the transaction has the whole database."""
        table.create(connection)
        return True


def _main_file(databases: Sequence[Any]) -> str:
    """Return the path of the main database; empty if it is in memory."""
    return next((str(path or "") for _, name, path in databases if name == "main"), "")


class SqliteListener:
    """
    Waits for notifications by other connections.

    SQLite numbers its commits, and reading that number costs next to nothing. Only after a commit
    does the listener read the number of the last notification, and only after a notification those
    of its own queues. With an ear, it reads when another process touches the catalog's file, as
    ours do after a notification; from time to time in any case, and often without one.
    """

    def __init__(self, driver: Any, queue_ids: QueueIds) -> None:
        self._driver = driver
        self._queue_ids = queue_ids
        self._ear: Ear | None = None
        self._commit = self._last_commit()
        self._heard = self._last_notification()
        self._mine = self._last_of_queues()

    def hear_by(self, ear: Ear, path: str) -> None:
        """Hear the touches of the catalog's file; raises `OSError` if it cannot be watched."""
        ear.join(self, lambda: Touches(path))
        self._ear = ear

    def wait(self, seconds: float) -> bool:
        """Wait for a notification; False when *seconds* passed without one."""
        end = time.monotonic() + seconds
        while not self._hears():
            left = end - time.monotonic()
            if left <= 0:
                return False
            if self._ear is None:
                time.sleep(min(GLANCE_SECONDS, left))
            else:
                self._ear.wait(self, time.monotonic() + min(TOUCHED_GLANCE_SECONDS, left))
        return True

    def close(self) -> None:
        """Stop listening."""
        if self._ear is not None:
            self._ear.leave(self)
        self._driver.close()

    def _hears(self) -> bool:
        commit = self._last_commit()
        if commit == self._commit:
            return False
        # In this order: a commit between the two readings only causes another reading.
        self._commit, before = commit, self._heard
        self._heard = self._last_notification()
        if self._heard == before:
            return False
        known, self._mine = self._mine, self._last_of_queues()
        return self._mine is None or self._mine != known

    def _last_commit(self) -> int:
        return int(self._driver.execute("PRAGMA data_version").fetchone()[0])

    def _last_notification(self) -> int:
        return int(self._driver.execute("PRAGMA user_version").fetchone()[0])

    def _last_of_queues(self) -> list[tuple[int, int]] | None:
        """Return the numbers of its queues; None if all queues concern it."""
        queue_ids = self._queue_ids()
        if queue_ids is None:
            return None
        among = json.dumps([*queue_ids])
        try:
            return list(self._driver.execute(_READ_NOTIFIED, (among,)))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            # Nobody has sent a notification yet.
            return []
