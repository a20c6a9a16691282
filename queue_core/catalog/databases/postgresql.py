"""Catalogs in PostgreSQL: a server, many writers with row locks, and notifications."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    MetaData,
    Select,
    Table,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    select,
    text,
    true,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, NoSuchModuleError
from sqlalchemy.ext.compiler import compiles

from queue_core.catalog.databases import bounded_waits, takeovers
from queue_core.catalog.databases.ear import Ear, ear_of
from queue_core.catalog.databases.error_codes import ErrorCodes
from queue_core.catalog.databases.expressions import (
    FIRST,
    NUMBERS,
    OneOf,
    each_of,
    if_versions,
    not_indexed,
    now,
)
from queue_core.catalog.databases.idle_connections import close_idle_ones
from queue_core.catalog.databases.interface import (
    Dialect,
    LentConnection,
    QueueIds,
    StillLocked,
    TransactionFailed,
    detached,
)
from queue_core.catalog.databases.poolers import SHARED_SESSIONS
from queue_core.catalog.tables import VERSIONED
from queue_core.errors import BadOption

#: The channel of all notifications; the payload names the queues.
CHANNEL = "ignis"
#: Stands for all queues.
EVERY = ""


class PostgresListener:
    """Waits for notifications of some queues; raises the driver's errors."""

    def __init__(self, ear: Ear, connect: Callable[[], Any], queue_ids: QueueIds) -> None:
        self._ear = ear
        self._queue_ids = queue_ids
        ear.join(self, lambda: _Notifications(connect()))

    def wait(self, seconds: float) -> bool:
        """Wait for a notification; False when *seconds* passed without one."""
        end = time.monotonic() + seconds
        while heard := self._ear.wait(self, end):
            if self._concerned_by(heard):
                return True
        return False

    def close(self) -> None:
        """Stop listening."""
        self._ear.leave(self)

    def _concerned_by(self, heard: set[str]) -> bool:
        queue_ids = self._queue_ids()
        return queue_ids is None or EVERY in heard or not heard.isdisjoint(map(str, queue_ids))


class _Notifications:
    """A connection that listens."""

    def __init__(self, driver: Any) -> None:
        try:
            driver.autocommit = True
            driver.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            # No pool knows the connection, so this must close it.
            driver.close()
            raise
        # A notification may take any time.
        driver.answer_seconds = math.inf
        self._driver = driver
        self.close = driver.close

    def hear(self, seconds: float) -> set[str]:
        """Wait for a notification, and return the queues of all that have come."""
        heard: set[str] = set()
        for each in self._driver.notifies(timeout=seconds, stop_after=1):
            heard.update(each.payload.split() or (EVERY,))
        if heard:
            # Those that have come meanwhile need no second look.
            for each in self._driver.notifies(timeout=0):
                heard.update(each.payload.split() or (EVERY,))
        return heard


#: The server refuses a payload of 8,000 bytes.
_PAYLOAD = 8_000

#: The most connections of an engine.
_MOST_CONNECTIONS = 20

#: The number in `psycopg.IsolationLevel`: the driver is an optional dependency.
_REPEATABLE_READ = 3

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_DUPLICATE = {"23505", "42P07", "42710"}
_LOCKED = "55P03"
#: The server ends the connection: it was told to stop, has crashed, or is not ready yet.
_ENDED = {"57P01", "57P02", "57P03"}

#: What a server says if it has no connection left, or none for the role or the database. The client
#: library gives no code for that. In another language, such an error is like any other.
_CROWDED = (
    "sorry, too many clients already",
    "remaining connection slots are reserved",
    "too many connections for ",
)

# Built once: a text is searched for parameters each time that it is made.
_NOTIFY = text("SELECT pg_notify(:channel, :payload)")
_LAST_ID = text("SELECT pg_sequence_last_value(pg_get_serial_sequence(:name, 'id')::regclass)")
_LIMIT_LOCKS = text("SELECT set_config('lock_timeout', :limit, true)")
#: Ways to find rows that read other rows too.
_WALKS = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
_LET_WALK = text("SELECT " + ", ".join(f"set_config('{way}', :{way}, true)" for way in _WALKS))
_USUAL = ", ".join(f"current_setting('{way}') AS {way}" for way in _WALKS)
_OFF = ", ".join(f"set_config('{way}', 'off', true)" for way in _WALKS)
_WALK_NO_MORE = text(f"SELECT usual.*, {_OFF} FROM (SELECT {_USUAL} OFFSET 0) AS usual")  # noqa: S608 - names
_LIMIT_LOCKS_FROM = text(
    "SELECT usual, set_config('lock_timeout', :limit, true) "
    "FROM (SELECT current_setting('lock_timeout') AS usual OFFSET 0) AS before"
)


@compiles(now, "postgresql")
def _now(*_: Any, **__: Any) -> str:
    # Not now(): that is when the transaction began.
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


@compiles(OneOf, "postgresql")
def _one_of(element: OneOf, compiler: Any, **options: Any) -> str:
    column = compiler.process(element.column, **options)
    # The driver's dialect adds the type of the array.
    return f"{column} = ANY ({compiler.process(element.values, **options)})"


@compiles(each_of, "postgresql")
def _each_of(element: each_of, compiler: Any, **options: Any) -> str:
    return f"unnest({compiler.process(element.clauses, **options)})"


@compiles(not_indexed, "postgresql")
def _not_indexed(element: not_indexed, compiler: Any, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)} + 0)"


@compiles(if_versions, "postgresql")
def _if_versions(element: if_versions, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


def _writable(driver: Any, _: Any) -> None:
    """Let the next transaction of a connection be a usual one."""
    if driver is None or driver.closed:
        return
    if driver.autocommit:
        driver.autocommit = False
    if driver.read_only:
        driver.set_isolation_level(None)
        driver.set_read_only(None)


def _note_end(context: ExceptionContext) -> None:
    """Let an error with which the server ends a connection count as a lost connection."""
    # The driver itself only knows when the socket is closed, which may be a moment later.
    if getattr(context.original_exception, "sqlstate", None) in _ENDED:
        context.is_disconnect = True


def _code_of(error: DBAPIError) -> str | None:
    state = getattr(error.orig, "sqlstate", None)
    return str(state) if state else None


def _is_crowded(error: BaseException) -> bool:
    known = error.orig if isinstance(error, DBAPIError) else error
    return any(text in str(known) for text in _CROWDED)


class Postgresql(Dialect):
    """Catalogs in PostgreSQL."""

    name = "postgresql"
    writes_in_parallel = True
    keeps_versions = True
    # A server commits transactions with notifications one after the other: each locks the whole
    # server until its log is written. A transaction that only notifies writes no log.
    notifies_alone = True
    errors = ErrorCodes(
        code_of=_code_of,
        retry={"40001", "40P01", "55P03"},
        damaged={"XX001", "XX002"},
        no_name={"42P01", "42703"},
        forbidden={"42501"},
        read_only={"25006"},
        reasons={
            "3F000": "has no schema; check the search_path of its role and database",
            _LOCKED: "is busy: another transaction keeps rows locked",
            **dict.fromkeys(("26000", "42P05"), SHARED_SESSIONS),
        },
        is_unsure=lambda error: getattr(error.orig, "outcome_unknown", False),
        is_crowded=_is_crowded,
    )

    def connect(self, url: str, shown: str, idle: int) -> Engine:
        """Return an engine for ``postgresql+psycopg://…`` whose waits are bounded."""
        try:
            # AUTOCOMMIT is never used: each transaction is explicit. pre_ping finds dead
            # connections.
            engine = create_engine(
                url,
                pool_pre_ping=True,
                pool_size=idle,
                max_overflow=_MOST_CONNECTIONS - idle,
                # So that those that are not needed stay idle, and can be closed.
                pool_use_lifo=True,
            )
        except (ModuleNotFoundError, NoSuchModuleError) as error:
            raise BadOption(
                f"catalog={shown!r} needs a driver: pip install 'ignis-queue[postgres]'"
            ) from error
        bounded_waits.check_driver(engine, shown)
        bounded_waits.bound_waits(engine, self.busy_seconds)
        close_idle_ones(engine)
        event.listen(engine, "checkin", _writable)
        event.listen(engine, "handle_error", _note_end)
        return engine

    def as_time(self, micros: ColumnElement[int]) -> ColumnElement[Any]:
        """Return a timestamp with time zone."""
        return func.to_timestamp(micros / 1e6)

    def place(self, connection: Connection, table: Table) -> str:
        """Return the server, the database and the table; a restored dump has another table."""
        # A standby that takes over keeps all three.
        allowed = text("SELECT has_function_privilege('pg_control_system()', 'execute')")
        system = text("SELECT system_identifier FROM pg_control_system()")
        names = [str(connection.scalar(system))] if connection.scalar(allowed) else []
        oids = text(
            "SELECT concat_ws(' ', oid, CAST(:table AS regclass)::oid) "
            "FROM pg_database WHERE datname = current_database()"
        )
        return " ".join(["database", *names, str(connection.scalar(oids, {"table": table.name}))])

    def begin(
        self, connection: Connection, *, write: bool, late: bool = False, apart: bool = False
    ) -> None:
        """Open a transaction."""
        # The driver begins one with the first statement. Without REPEATABLE READ each statement
        # would see a newer state. The driver says so in its BEGIN.
        driver: Any = connection.connection.driver_connection
        if apart:
            # There is no BEGIN and no COMMIT to wait for.
            driver.autocommit = True
        elif not write:
            driver.set_isolation_level(_REPEATABLE_READ)
            driver.set_read_only(True)

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """Limit the wait for each lock; an end of the transaction restores the limit."""
        connection.execute(_LIMIT_LOCKS, {"limit": f"{seconds * 1000:.0f}ms"})

    def notify(self, connection: Connection, queue_ids: Collection[int]) -> None:
        """Wake the listeners of some queues when the transaction commits; of very many, all."""
        payload = " ".join(map(str, sorted(queue_ids)))
        payload = payload if len(payload) < _PAYLOAD else ""
        connection.execute(_NOTIFY, {"channel": CHANNEL, "payload": payload})

    def notify_committed(self, connection: Connection, queue_ids: Collection[int]) -> None:
        """Wake them at once, in one round trip."""
        driver: Any = connection.connection.driver_connection
        driver.autocommit = True
        try:
            self.notify(connection, queue_ids)
            connection.commit()
        finally:
            driver.autocommit = False

    def listen(self, engine: Engine, queue_ids: QueueIds) -> PostgresListener:
        """Return a listener for notifications of some queues."""
        return PostgresListener(ear_of(engine), lambda: detached(engine), queue_ids)

    def lend(self, driver: Any) -> LentConnection:
        """Cover a connection of `psycopg`."""
        # The catalog's engine has imported it.
        import psycopg
        from psycopg.pq import PipelineStatus, TransactionStatus
        from psycopg.rows import tuple_row

        if not isinstance(driver, psycopg.Connection):
            raise BadOption(
                f"connection is one of {type(driver).__module__}: the catalog is in PostgreSQL, so "
                "use psycopg (3), or SQLAlchemy with postgresql+psycopg://"
            )
        if driver.closed:
            raise BadOption("connection is closed: pass one that is open, in a transaction")
        if driver.info.pipeline_status != PipelineStatus.OFF:
            raise BadOption(
                "connection is in pipeline mode, in which statements have no results yet: call "
                "ignis before or after the block of pipeline()"
            )
        if driver.info.transaction_status == TransactionStatus.INERROR:
            raise TransactionFailed(
                "the transaction of connection has failed before, and can only be rolled back; "
                "nothing was changed"
            )
        return LentConnection(driver, lambda: psycopg.Cursor(driver, row_factory=tuple_row))

    def join(self, driver: Any) -> None:
        """Raise `BadOption` if no transaction is open and the driver would begin none."""
        from psycopg.pq import TransactionStatus

        if driver.info.transaction_status == TransactionStatus.IDLE and driver.autocommit:
            raise BadOption(
                "connection has no transaction, and would commit each statement by itself: begin "
                "one first, such as with `with connection.transaction():`"
            )

    def in_transaction(self, driver: Any) -> bool:
        """Return whether a transaction is open, even a failed one."""
        from psycopg.pq import TransactionStatus

        return bool(driver.info.transaction_status != TransactionStatus.IDLE)

    def abort(self, driver: Any, engine: Engine) -> None:
        """Have the server end the session: the connection itself is busy."""
        with engine.connect() as connection:
            session = {"pid": driver.info.backend_pid}
            connection.execute(text("SELECT pg_terminate_backend(:pid)"), session)

    def shown(self, driver: Any) -> str:
        """Return the user, the server and the database."""
        known = driver.info
        return f"postgresql://{known.user}@{known.host or 'local'}:{known.port}/{known.dbname}"

    def whereabouts(self, connection: Connection, table: Table) -> str:
        """Return when the server began, and the numbers of the database and the table."""
        # A copy of the server has the same numbers, and began at another time.
        query = text(
            "SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), oid, "
            "CAST(to_regclass(:table) AS oid)) FROM pg_database WHERE datname = current_database()"
        )
        return str(connection.scalar(query, {"table": table.name}))

    def sees_commits(self, connection: Connection) -> bool:
        """Return whether each statement sees a newer state."""
        level = connection.scalar(text("SELECT current_setting('transaction_isolation')"))
        return level in ("read committed", "read uncommitted")

    @contextmanager
    def waiting(self, connection: Connection, seconds: float | None) -> Iterator[None]:
        """Wait for each lock within the block for *seconds* at most; raises `StillLocked`."""
        if seconds is None:
            yield
            return
        limit = {"limit": f"{seconds * 1000:.0f}ms"}
        usual = connection.scalar(_LIMIT_LOCKS_FROM, limit)
        try:
            yield
        except DBAPIError as error:
            # A rollback also restores the limit.
            if _code_of(error) != _LOCKED:
                raise
            raise StillLocked from error
        connection.execute(_LIMIT_LOCKS, {"limit": usual})

    @contextmanager
    def by_index(self, connection: Connection) -> Iterator[None]:
        """Keep the planner from reading whole tables: its plans may be older than their rows."""
        usual = connection.execute(_WALK_NO_MORE).one()
        yield
        connection.execute(_LET_WALK, dict(zip(_WALKS, usual, strict=False)))

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
        """Look at the rows of one key after the other."""
        each = self.rows_of([*(column.name for column in key), FIRST])
        here = [column == each.c[column.name] for column in key]
        here.append(order >= each.c[FIRST])
        most = bindparam(limit, type_=BigInteger)
        first = select(table).where(*where, *here).order_by(order).limit(most)
        if skip_locked:
            first = first.with_for_update(skip_locked=True)
        found = first.lateral("found")
        return select(found).select_from(each.join(found, true()))

    def rows_of(self, names: Sequence[str]) -> FromClause:
        """Unpack arrays side by side."""
        arrays = [cast(bindparam(f"given_{name}", type_=NUMBERS), NUMBERS) for name in names]
        return func.unnest(*arrays).table_valued(*names, name="given").render_derived()

    def given_rows(self, columns: Mapping[str, Sequence[int | None]]) -> dict[str, Any]:
        """Return an array for each column."""
        return {f"given_{name}": list(values) for name, values in columns.items()}

    def create_tables(self, connection: Connection, metadata: MetaData, but: Table) -> None:
        """Create all tables, find newest rows by their versions, and note the server's timeline."""
        super().create_tables(connection, metadata, but)
        # With a primary key, each new version of a row would cost a look at all the others.
        for name in (table.name for table in VERSIONED):
            connection.exec_driver_sql(f"ALTER TABLE {name} DROP CONSTRAINT {name}_pkey")
            connection.exec_driver_sql(
                f"CREATE UNIQUE INDEX {name}_by_version ON {name} "
                "(queue_id, magazine, shard, version)"
            )
            # Logical replication (CREATE PUBLICATION) identifies rows by it.
            connection.exec_driver_sql(
                f"ALTER TABLE {name} REPLICA IDENTITY USING INDEX {name}_by_version"
            )
        takeovers.begin(connection)

    def insert_new(self, table: Any) -> Any:
        """Return PostgreSQL's INSERT."""
        return postgresql.insert(table)

    def last_id(self, connection: Connection, table: Table) -> int:
        """Read the last value of the sequence of the ids."""
        return int(connection.scalar(_LAST_ID, {"name": table.name}) or 0)

    def raise_ids(self, connection: Connection, table: Table, last: int) -> None:
        """Set the sequence of the ids."""
        query = text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :last)")
        last = max(last, self.last_id(connection, table), 1)
        connection.execute(query, {"name": table.name, "last": last})

    def lock_tables(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Lock the tables against all but readers."""
        names = ", ".join(table.name for table in tables)
        connection.exec_driver_sql(f"LOCK TABLE {names} IN EXCLUSIVE MODE")

    def create_alone(self, connection: Connection, table: Table) -> bool:
        """Create a table; of two that create it at once, the second waits, and then fails."""
        try:
            with connection.begin_nested():
                table.create(connection, checkfirst=False)
        except DBAPIError as error:
            if _code_of(error) not in _DUPLICATE:
                raise
            return False
        return True

    def run_all(self, connection: Connection, statements: Sequence[str]) -> None:
        """Run statements that have no parameters and no results, in one round trip."""
        connection.exec_driver_sql(";".join(statements), execution_options={"no_parameters": True})
