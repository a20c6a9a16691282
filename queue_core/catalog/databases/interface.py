"""The questions that each database answers in its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    MetaData,
    Select,
    Table,
    text,
)
from sqlalchemy.schema import CreateIndex, CreateTable

from queue_core.catalog.databases.error_codes import ErrorCodes
from queue_core.errors import Conflict

#: Returns the queues that concern a listener; None: all.
QueueIds: TypeAlias = Callable[[], Collection[int] | None]


class StillLocked(Exception):
    """Another transaction has kept a lock for longer than this one would wait for it."""


class Listener(Protocol):
    """Hears when the catalog may have changed, on a connection outside of transactions."""

    def wait(self, seconds: float) -> bool:
        """Wait for a notification; False when *seconds* passed without one."""

    def close(self) -> None:
        """Stop listening."""


def detached(engine: Engine) -> Any:
    """Return a driver's connection that the engine's pool does not count; the caller closes it."""
    connection = engine.raw_connection()
    driver = connection.driver_connection
    connection.detach()
    return driver


class Dialect(ABC):
    """A kind of database. A class that lacks an answer cannot be instantiated."""

    #: The name of SQLAlchemy's dialect.
    name: ClassVar[str]
    #: What the codes of its errors mean.
    errors: ClassVar[ErrorCodes]
    #: Whether several transactions can write at the same time.
    writes_in_parallel: ClassVar[bool]
    #: Whether it keeps rows that were changed or removed while an older transaction is open.
    keeps_versions: ClassVar[bool] = False
    #: Whether a notification slows down the transaction that sends it.
    notifies_alone: ClassVar[bool] = False
    #: Seconds to wait for another process to commit, or for a lock.
    busy_seconds: ClassVar[float] = 60.0
    #: Seconds between the transactions of a long task, in which a writer that waits comes first.
    gap_seconds: ClassVar[float] = 0.0

    def __init__(self) -> None:
        #: Compiled statements, by what they create.
        self._compiled: dict[str, Sequence[str]] = {}

    @abstractmethod
    def connect(self, url: str, shown: str, idle: int) -> Engine:
        """
        Return an engine; *shown* is the URL for errors. Raises `BadOption`.

        *idle*: how many connections that nobody uses stay open. More are open while they are used.
        """

    def file_of(self, engine: Engine) -> Path | None:
        """Return the file that is the whole catalog; None where a server keeps it."""
        return None

    @abstractmethod
    def as_time(self, micros: ColumnElement[int]) -> ColumnElement[Any]:
        """Return a time for tools that read the catalog, from microseconds since 1970."""

    @abstractmethod
    def place(self, connection: Connection, table: Table) -> str:
        """Return a name for the place of the catalog with *table*; a copy has another one."""

    @abstractmethod
    def begin(
        self, connection: Connection, *, write: bool, late: bool = False, apart: bool = False
    ) -> None:
        """
        Open a transaction that reads one state of the catalog, or that may write.

        *late*: where one transaction writes at a time, lock the others out with `take`. It fails
        with an error to retry if others have written since the transaction began to read. *apart*:
        each statement may read another state.
        """

    @abstractmethod
    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """Let the transaction that is about to begin wait for a lock for *seconds* at most."""

    def take(self, connection: Connection) -> None:  # noqa: B027 - where many write, rows are locked
        """Lock others out, if this transaction began *late*, just before its first write."""

    def shrink_log(self, connection: Connection) -> None:  # noqa: B027 - a server does so itself
        """Free the room of the log of committed transactions."""

    @abstractmethod
    def notify(self, connection: Connection, queue_ids: Collection[int]) -> None:
        """Wake the listeners of some queues when the transaction commits."""

    @abstractmethod
    def notify_committed(self, connection: Connection, queue_ids: Collection[int]) -> None:
        """
        Wake the listeners of a transaction that is committed.

        Where notifications are sent alone, this sends them. Elsewhere, they are already there.
        """

    @abstractmethod
    def listen(self, engine: Engine, queue_ids: QueueIds) -> Listener:
        """Return a new listener for notifications of some queues."""

    @abstractmethod
    def lend(self, driver: Any) -> LentConnection:
        """
        Cover a driver's connection whose transaction the caller commits.

        Raises `BadOption` for another driver, and `Conflict` if its transaction has failed.
        """

    @abstractmethod
    def join(self, driver: Any) -> None:
        """
        Begin the transaction of a driver's connection if the driver has put that off.

        Raises `BadOption` if it would commit each statement, and `Conflict` if others write now.
        """

    @abstractmethod
    def in_transaction(self, driver: Any) -> bool:
        """Return whether a transaction of a driver's connection is open."""

    @abstractmethod
    def abort(self, driver: Any, engine: Engine) -> None:
        """End the transaction of a driver's connection that another thread of *engine* uses."""

    def let_abort(self, engine: Engine, is_aborted: Callable[[], bool]) -> None:  # noqa: B027
        """Prepare an engine for `abort`: *is_aborted* says it of the transaction of a thread."""

    @abstractmethod
    def shown(self, driver: Any) -> str:
        """Return the address of a driver's connection, without secrets."""

    @abstractmethod
    def whereabouts(self, connection: Connection, table: Table) -> str:
        """Return a text that two connections share only if they use the same *table*."""

    @abstractmethod
    def sees_commits(self, connection: Connection) -> bool:
        """Return whether a statement that has taken a lock sees all that was committed before."""

    def waiting(
        self, connection: Connection, seconds: float | None
    ) -> AbstractContextManager[object]:
        """
        Wait for each lock within the block for *seconds* at most, if any; raises `StillLocked`.

        The transaction can only be rolled back then, up to a savepoint or as a whole. Where one
        transaction writes at a time, it has the only lock, and this changes nothing.
        """
        return nullcontext()

    def by_index(self, connection: Connection) -> AbstractContextManager[object]:
        """Find rows by indexes within the block, even in a table that was small a moment ago."""
        return nullcontext()

    @abstractmethod
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
        """
        Return the first rows of each key, by *order*, in any order.

        *table* has the column ``id``. *key* are some of its integer columns. Their values are
        parameters (`given_rows`), followed by `FIRST`, the value of *order* from which on to look.
        The parameter *limit* is how many rows of each key there are at most. With *skip_locked*,
        lock the rows, and pass over those that others have locked.
        """

    @abstractmethod
    def rows_of(self, names: Sequence[str]) -> FromClause:
        """Return a table with columns of integers, whose values are parameters (`given_rows`)."""

    @abstractmethod
    def given_rows(self, columns: Mapping[str, Sequence[int | None]]) -> dict[str, Any]:
        """Return the parameters of `rows_of`, from columns of that order and equal length."""

    @abstractmethod
    def insert_new(self, table: Any) -> Any:
        """Return an INSERT that has ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""

    @abstractmethod
    def last_id(self, connection: Connection, table: Table) -> int:
        """Return the highest id that the table has ever assigned."""

    @abstractmethod
    def raise_ids(self, connection: Connection, table: Table, last: int) -> None:
        """Let the next ids of a table begin after *last*; they never go back."""

    @abstractmethod
    def lock_tables(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Wait for all writing transactions, and keep new ones waiting; readers continue."""

    @abstractmethod
    def create_alone(self, connection: Connection, table: Table) -> bool:
        """Create the first table; return False if another transaction created it meanwhile."""

    def create_tables(self, connection: Connection, metadata: MetaData, but: Table) -> None:
        """
        Create all tables except *but*; none of them may exist yet.

        The *info* of an index may restrict it to rows, by the key "where".
        """
        self.create(connection, "tables", lambda: self._tables(connection, metadata, but))

    def create(
        self, connection: Connection, what: str, statements: Callable[[], Iterable[str]]
    ) -> None:
        """Run *statements*, which create *what*; they are compiled once per process."""
        # To compile them takes longer than to run them.
        if what not in self._compiled:
            self._compiled[what] = tuple(statements())
        self.run_all(connection, self._compiled[what])

    def _tables(self, connection: Connection, metadata: MetaData, but: Table) -> Iterator[str]:
        for table in metadata.sorted_tables:
            if table is but:
                continue
            yield str(CreateTable(table).compile(dialect=connection.dialect))
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                # As an argument of the index, it would import all dialects that it names.
                if "where" in index.info:
                    index.dialect_options[self.name]["where"] = text(index.info["where"])
                yield str(CreateIndex(index).compile(dialect=connection.dialect))

    def run_all(self, connection: Connection, statements: Sequence[str]) -> None:
        """Run statements that have no parameters and no results."""
        for statement in statements:
            connection.exec_driver_sql(statement)


class TransactionFailed(Conflict):
    """A statement of the caller's transaction has failed, and the database ends it."""


class LentConnection:
    """
    A driver's connection that belongs to the caller.

    Only the caller commits, rolls back and closes it, so these methods do nothing here. *cursor*
    makes cursors whose rows are tuples, whatever the caller has chosen for its own.
    """

    def __init__(self, driver: Any, cursor: Callable[[], Any]) -> None:
        self._driver = driver
        self.cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def commit(self) -> None:
        """Do nothing."""

    rollback = close = commit
