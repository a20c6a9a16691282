"""The catalog within a transaction of the caller, who commits it or rolls it back.

Verbs write through a `CallersCatalog` as through any catalog, and their changes become visible
together with the caller's own, or never. Each call has a savepoint, so a call that fails changes
nothing, even if the caller goes on and commits. Nothing here waits for a change of the catalog:
other processes could wait for locks of the caller meanwhile.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, NullPool
from sqlalchemy.exc import DBAPIError, PendingRollbackError

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.databases.interface import LentConnection
from queue_core.catalog.records.timings import Timings
from queue_core.catalog.tables import facts
from queue_core.errors import BadOption, Conflict, IgnisError

Result = TypeVar("Result")
if TYPE_CHECKING:
    import sqlite3

    import psycopg

    #: A connection whose transaction a call joins.
    CallersConnection: TypeAlias = Connection | psycopg.Connection[Any] | sqlite3.Connection

#: The savepoint of a call, and that of each of its transactions.
_SAVEPOINT, _WRITE = "ignis", "ignis_write"


class CallersCatalog(Catalog):
    """
    A catalog whose transactions are parts of one transaction of the caller.

    Args:
        catalog: The catalog of the store.
        connection: A connection that covers the one of the caller.
        driver: The caller's connection, as its driver made it.
    """

    def __init__(self, catalog: Catalog, connection: Connection, driver: Any) -> None:
        # Nothing is opened: everything happens on the given connection.
        self.url = catalog.url
        self.engine = connection.engine
        self.file = catalog.file
        # It ends with the call, and what a caller rolls back was not measured.
        self.timings = Timings()
        self.ticket_numbers = None
        self.unread = []
        #: The catalog of the store, for reads that need not see the caller's changes.
        self.own = catalog
        self.connection = connection
        self.driver = driver

    def write(
        self, work: Callable[[Connection], Result], *, grows: bool = False, **_: Any
    ) -> Result:
        """Run *work* once within the caller's transaction, and commit nothing."""
        with self.read() as connection:
            connection.exec_driver_sql(f"SAVEPOINT {_WRITE}")
            try:
                result = work(connection)
            except Exception:
                # A caller that catches the error goes on in this transaction.
                _undo(connection, _WRITE)
                raise
            connection.exec_driver_sql(f"RELEASE SAVEPOINT {_WRITE}")
        if grows:
            self.own.check_reserve()
        return result

    def give_way(self) -> None:
        """Do nothing: other writers wait for the end of the caller's transaction anyway."""

    @contextmanager
    def read(self, *, locking: bool = False, apart: bool = False) -> Iterator[Connection]:
        """Return the caller's connection; it sees the changes of its transaction."""
        try:
            yield self.connection
        except DBAPIError as error:
            raise _translated(self.own, error) from error

    def close(self, *, for_good: bool = False) -> None:
        """Do nothing: the connection belongs to the caller."""

    @property
    def turn(self) -> int | None:
        """
        A number of the caller's connection, which picks the shard of loads without a key.

        Two loads of one transaction then lock the same shard. In shards by turns, two transactions
        could wait for each other. None where only one transaction writes at a time.
        """
        if not dialect.of(self.connection).writes_in_parallel:
            return None
        if self.driver not in _turns:
            _turns[self.driver] = random.randrange(1 << 16)
        return _turns[self.driver]

    def sees_commits(self) -> bool:
        """Return whether a statement that has taken a lock sees all that was committed before."""
        return dialect.of(self.connection).sees_commits(self.connection)


@contextmanager
def callers(catalog: Catalog, given: object) -> Iterator[CallersCatalog]:
    """
    Open a catalog within the transaction of the connection *given*, for one call.

    Raises `BadOption` for anything but a connection to the catalog's database in a transaction.
    The block's changes are undone if it raises. Then an error of the database becomes `Conflict` if
    the same transaction may succeed when the caller runs it again, and otherwise
    `CatalogUnavailable` or `DamagedCatalog`.
    """
    catalog.check_open()
    database = dialect.of(catalog.engine)
    driver = _driver_of(given)
    with _covered(catalog, database.lend(driver)) as connection:
        try:
            _check_same(catalog, connection, driver)
            database.join(driver)
            connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
            try:
                yield CallersCatalog(catalog, connection, driver)
                connection.exec_driver_sql(f"RELEASE SAVEPOINT {_SAVEPOINT}")
            except BaseException:
                _undo(connection, _SAVEPOINT)
                raise
        except DBAPIError as error:
            raise _translated(catalog, error) from error


def _driver_of(given: object) -> Any:
    """Return the driver's connection; the transaction of a connection of SQLAlchemy has begun."""
    if isinstance(given, Connection):
        if given.closed or given.invalidated:
            raise BadOption(
                "connection is closed, or was lost: pass one that is open, in a transaction"
            )
        if not given.in_transaction():
            # As its first statement would: SQLAlchemy commits only transactions that it knows.
            given.begin()
        return given.connection.driver_connection
    if callable(getattr(given, "get_bind", None)):
        raise BadOption("connection is a session of SQLAlchemy: pass session.connection()")
    return given


def _check_same(catalog: Catalog, connection: Connection, driver: Any) -> None:
    database = dialect.of(connection)
    there = database.whereabouts(connection, facts)
    known = _whereabouts.get(catalog)
    if there != known:
        # The server may have begun again since.
        with catalog.read() as own:
            _whereabouts[catalog] = known = database.whereabouts(own, facts)
    if there != known:
        raise BadOption(
            f"connection uses the database {database.shown(driver)}, and the catalog is "
            f"{catalog.file or dialect.hidden(catalog.url)}; nothing was changed: connect to the "
            "database of the catalog, and to its schema"
        )


#: Where the catalogs of this process are, as their databases say.
_whereabouts: WeakKeyDictionary[Catalog, str] = WeakKeyDictionary()


def _undo(connection: Connection, savepoint: str) -> None:
    # A lost connection has no savepoint, and neither has a database on a full disk.
    with suppress(DBAPIError, PendingRollbackError):
        connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {savepoint}")
        connection.exec_driver_sql(f"RELEASE SAVEPOINT {savepoint}")


def _translated(catalog: Catalog, error: DBAPIError) -> IgnisError:
    if dialect.of(catalog.engine).errors.is_read_only(error):
        return BadOption(
            f"the transaction of connection is read-only ({' '.join(str(error.orig).split())}); "
            "nothing was changed: pass a connection whose transaction may write"
        )
    if dialect.of(catalog.engine).errors.can_retry(error):
        return Conflict(
            f"conflict with a concurrent transaction ({' '.join(str(error.orig).split())}); "
            "nothing was changed: roll back your transaction, and run it again"
        )
    return catalog.translated(error)


#: The numbers of callers' connections.
_turns: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
#: Engines that open and close no connection: each covers the one that its thread was lent.
_engines: WeakKeyDictionary[Catalog, Engine] = WeakKeyDictionary()
_lent = threading.local()


@contextmanager
def _covered(catalog: Catalog, driver: LentConnection) -> Iterator[Connection]:
    """Return a connection of SQLAlchemy that covers the one of a caller."""
    # One engine, since it keeps the compiled statements. Two threads may make one each, which does
    # no harm.
    engine = _engines.get(catalog)
    if engine is None:
        spoken = catalog.engine.dialect
        pool = NullPool(lambda: _lent.driver, reset_on_return=None, dialect=spoken)
        _engines[catalog] = engine = Engine(pool, spoken, catalog.engine.url)
    _lent.driver = driver
    try:
        connection = engine.connect()
    finally:
        # A caller's connection that nobody closes ends, with its transaction, when it is forgotten.
        del _lent.driver
    with connection:
        yield connection
