"""The catalog: one database with explicit transactions and its own clock."""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, Engine, event, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from queue_core.catalog import connections, dialect, format, notifications
from queue_core.catalog.holders.ticket_numbers import TicketNumbers
from queue_core.catalog.records.timings import Timings
from queue_core.catalog.reserve import Reserve
from queue_core.catalog.tables import facts
from queue_core.errors import (
    BadOption,
    CatalogUnavailable,
    DamagedCatalog,
    FormatTooNew,
    IgnisError,
    Invalid,
    NoSuchStore,
)
from queue_core.support import faults
from queue_core.support.durable import make_folder
from queue_core.values.address import CATALOG_FILE
from queue_core.values.model import Ticket

if TYPE_CHECKING:
    from queue_core.catalog.identity.identity import NewStore

Result = TypeVar("Result")

#: Attempts of a transaction before its error is raised, and the first pause between two.
ATTEMPTS = 12
PAUSE_SECONDS = 0.005

#: How many attempts before these begin late (`Dialect.begin`): they fail if others write meanwhile.
#: A failed one costs only itself; one that is not late keeps others waiting while it reads.
LATE_ATTEMPTS = 16
#: The longest pause after one of them, in seconds: a writer leaves gaps of some milliseconds.
LATE_PAUSE_SECONDS = 0.004

#: Why a folder cannot be made, however often it is tried.
_NO_FOLDER = {
    errno.EEXIST: "a file has this name",
    errno.ENOTDIR: "a part of its path is a file",
}

#: Stands for the number of a file that was removed or replaced; no file has it.
_LOST = -2

#: How often a transaction without room gives up the reserve: others may take the room meanwhile.
RELIEFS = 3
#: The least limit of a wait for a lock, in seconds.
LEAST_SECONDS = 0.5


class Catalog:
    """
    The catalog at a database URL. Threads and processes can share it.

    *idle*: how many connections to a server that nobody uses stay open.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        new: NewStore | None = None,
        idle: int = dialect.IDLE_CONNECTIONS,
    ) -> None:
        self.url = url
        self.engine = connections.borrow(self, url, idle)
        self._dialect = dialect.of(self.engine)
        #: The file of a catalog on SQLite; None on a server.
        self.file = self._dialect.file_of(self.engine)
        #: The path of the file, or the URL without secrets.
        self._shown = str(self.file or dialect.hidden(url))
        self._reserve = Reserve(self.file)
        #: How long messages waited and took, as this process has measured it.
        self.timings = Timings()
        #: The tickets that its consumers have reserved; None if they reserve none.
        self.ticket_numbers = TicketNumbers() if self._dialect.keeps_versions else None
        #: The tickets that firings here may have made, and whose messages nobody has got.
        self.unread: list[Ticket] = []
        self._new = new
        #: The id of its store, once it is known: `Identity` notes it.
        self.store: str | None = None
        self._identity: int | None = None
        #: The threads that prepare it just now.
        self._preparers: set[int] = set()
        self._closed = False
        #: Called with each new connection of the driver.
        self._set_up: list[Callable[..., None]] = []
        try:
            self._prepare(create)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Catalog {self._shown}>"

    def write(
        self,
        work: Callable[[Connection], Result],
        *,
        grows: bool = False,
        late: bool = False,
        seconds: float | None = None,
    ) -> Result:
        """
        Run *work* in one transaction and commit it; run it again when the database says so.

        *work* may therefore run more than once and must have no other effects. If it *grows* the
        store, as a load does, it leaves the reserve of a full disk alone. *late*: others may write
        while it reads, as `Dialect.begin` says; after some failures, it keeps them waiting.
        *seconds*: the longest wait for a lock, from `LEAST_SECONDS` to `Dialect.busy_seconds`,
        which is the default. Raises what *work* raises, `CatalogUnavailable` or `DamagedCatalog`.
        Then nothing was changed, unless the error's `outcome_unknown` is true.
        """
        most = self._dialect.busy_seconds
        if seconds is not None:
            most = seconds = min(max(seconds, LEAST_SECONDS), most)
        end = time.monotonic() + most
        errors = self._dialect.errors
        reliefs = 0
        late_ones = LATE_ATTEMPTS if late and not self._dialect.writes_in_parallel else 0
        try:
            for attempt in itertools.count(1 - late_ones):
                committing = False
                begins_late = attempt < 1
                transaction = self._transaction(write=True, late=begins_late, seconds=seconds)
                try:
                    with transaction as connection:
                        result = work(connection)
                        if begins_late:
                            # Even if nothing was written, the result must be of the present state.
                            self._dialect.take(connection)
                        if grows:
                            self.check_reserve()
                        notifications.send_within(connection, self._dialect)
                        committing = True
                    return result
                except DBAPIError as error:
                    if not grows and reliefs < RELIEFS and errors.has_no_room(error):
                        self._reserve.give_up()
                        reliefs += 1
                        continue
                    spent = attempt == ATTEMPTS or time.monotonic() > end
                    if spent or not errors.can_retry(error):
                        raise self.translated(error, committing=committing) from error
                finally:
                    # If an interrupt has kept the block from ending, its traceback keeps the locks.
                    transaction.gen.close()
                pause = LATE_PAUSE_SECONDS if begins_late else PAUSE_SECONDS * 2**attempt
                time.sleep(min(random.uniform(0, pause), max(end - time.monotonic(), 0)))
        finally:
            if reliefs:
                self._regain()
        raise AssertionError("the loop above returns or raises")

    @contextmanager
    def read(self, *, locking: bool = False, apart: bool = False) -> Iterator[Connection]:
        """
        Open a transaction that sees one state of the catalog and changes nothing.

        With *locking*, it may take locks, and each statement may see a newer state. With *apart*,
        each statement may see a newer state too, and costs only one round trip to a server.
        """
        locks = locking and self._dialect.writes_in_parallel
        try:
            with self._transaction(write=locks, apart=apart) as connection:
                yield connection
        except DBAPIError as error:
            raise self.translated(error) from error

    def now(self) -> int:
        """Return the time by the database's clock, in microseconds since 1970."""
        with self.read() as connection:
            return dialect.read_clock(connection)

    def give_way(self) -> None:
        """Let other writers go first, between two transactions of a long task."""
        if self._dialect.gap_seconds:
            time.sleep(self._dialect.gap_seconds)

    def on_connect(self, set_up: Callable[..., None]) -> None:
        """Call *set_up* with each connection of the driver that is opened from now on."""
        self._set_up.append(set_up)
        event.listen(self.engine, "connect", set_up)
        # Connections that are open already would stay as they are.
        self.engine.dispose()

    def own_engine(self) -> Engine:
        """Return an engine for the same database; its only user must call `connections.end`."""
        engine = dialect.connect(self.url)
        connections.close_late_ones(engine)
        for set_up in self._set_up:
            event.listen(engine, "connect", set_up)
        return engine

    def keep_reserve(self) -> None:
        """Let the reserve for a full disk grow with the catalog."""
        self._reserve.keep()

    def close(self, *, for_good: bool = False) -> None:
        """
        Close all connections that no other catalog uses.

        A later call opens new ones; if it is closed *for_good*, the call raises `Invalid`.
        """
        if not self._closed:
            self.timings.flush(self.write, at_once=True)
        self._closed = self._closed or for_good
        connections.give_back(self, self.engine)

    def check_open(self) -> None:
        """Raise `Invalid` if the catalog was closed for good."""
        if self._closed:
            raise Invalid(
                f"the store of catalog {self._shown} is closed; open it again with Store.open"
            )

    def is_replaced(self) -> bool:
        """Return whether its file was removed, or is another one, since it was opened."""
        return self._identity != self._inode()

    @contextmanager
    def _transaction(
        self,
        *,
        write: bool,
        late: bool = False,
        apart: bool = False,
        seconds: float | None = None,
    ) -> Iterator[Connection]:
        self.check_open()
        if self.is_replaced() and threading.get_ident() not in self._preparers:
            # The folder was removed, and maybe created again: writes would be lost. Once no
            # connection is open, the file of another store may get the same number.
            self._identity = _LOST
            self.engine.dispose()
            self._prepare(create=False)
        with self._connected() as connection:
            if seconds is not None:
                self._dialect.limit_waits(connection, seconds)
            self._dialect.begin(connection, write=write, late=late, apart=apart)
            try:
                outbox = notifications.Outbox(connection)
                try:
                    yield connection
                finally:
                    outbox.close()
                outbox.commit(connection, self._dialect)
            except BaseException:
                self._roll_back(connection)
                raise

    def translated(self, error: DBAPIError, *, committing: bool = False) -> IgnisError:
        """Return our error for an error of the database, which may have come from a commit."""
        if self._dialect.errors.lacks_name(error):
            # A newer ignis may have migrated the catalog since this process opened it.
            try:
                with self._transaction(write=False) as connection:
                    format.read(connection, self._shown)
            except FormatTooNew as newer:
                return newer
            except (DBAPIError, IgnisError):
                pass
        shown = dialect.hidden(self.url)
        return self._dialect.errors.translated(error, shown, committing=committing)

    def check_reserve(self) -> None:
        """Raise `CatalogUnavailable` if the reserve for a full disk is given up."""
        if not self._reserve.is_there():
            raise CatalogUnavailable(
                f"catalog {self._shown} is on a full disk, and its reserve is for deletions; "
                "nothing was changed: free some room, or delete messages, and run: ignis vacuum "
                "--grace 0"
            )

    def _regain(self) -> None:
        """Make the reserve again, from the room of SQLite's log."""
        with suppress(DBAPIError, PoolTimeout), self.engine.connect() as connection:
            self._dialect.shrink_log(connection)
        self.keep_reserve()

    def _connected(self) -> Connection:
        try:
            return connections.wait_for(self._connect, self._dialect, self._shown)
        except DBAPIError as error:
            if not self._dialect.errors.has_no_room(error):
                raise
            # The first connection needs room for files of its own.
            self._reserve.give_up()
            return self.engine.connect()
        except PoolTimeout as error:
            raise CatalogUnavailable(
                f"catalog {self._shown}: all connections of this process are in use; use "
                "fewer threads"
            ) from error

    def _connect(self) -> Connection:
        self.check_open()
        return self.engine.connect()

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except DBAPIError:
            # The database ended the transaction by itself, as SQLite does on a full disk.
            connection.invalidate()

    def _prepare(self, create: bool) -> None:
        self._preparers.add(threading.get_ident())
        try:
            self._bring_up_to_date(create)
            self._check_same()
            self.keep_reserve()
            self._identity = self._inode()
        finally:
            self._preparers.discard(threading.get_ident())

    def _check_same(self) -> None:
        """Raise `NoSuchStore` if the file of an open store is the catalog of another one now."""
        if self.store is None:
            return
        with self.read() as connection:
            found = connection.scalar(select(facts.c.value).where(facts.c.name == "store"))
        if found not in (None, self.store):
            raise NoSuchStore(
                f"the store of catalog {self._shown} was removed, and another one was made in "
                "its place; open it again, and start its queries with new checkpoints"
            )

    def _inode(self) -> int | None:
        try:
            return os.stat(self.file).st_ino if self.file else None
        except (FileNotFoundError, NotADirectoryError):
            return -1
        except OSError as error:
            raise CatalogUnavailable(
                f"catalog {self._shown} cannot be reached: {error.strerror}; nothing was changed"
            ) from error

    def _bring_up_to_date(self, create: bool) -> None:
        if self.file is not None and self._inode() == -1:
            if not create:
                if self._identity is not None and self._new is not None:
                    # Of an open store: its messages may be there still.
                    self._new.check()
                embedded = self.file.name == CATALOG_FILE
                raise NoSuchStore(
                    f"there is no ignis store at {self.file.parent if embedded else self.file}; "
                    "check the path, or create a queue first"
                )
            try:
                # Before any file is created.
                if self._new is not None:
                    self._new.check()
            except DamagedCatalog:
                # Another process may have made it meanwhile.
                if self._inode() == -1:
                    raise
            _make(self.file)
        elif self._is_current():
            return
        done = self.write(
            lambda connection: format.prepare(connection, self._shown, create=create, new=self._new)
        )
        if done == "open":
            faults.point("open.committed")
        elif done == "migrate":
            faults.point("migrate.committed")

    def _is_current(self) -> bool:
        """Return whether the catalog can be used as it is, without locking out writers."""
        with self.read() as connection:
            return format.is_current(connection, self._shown)


def _make(file: Path) -> None:
    """Make the empty file of a new catalog, which no connection does."""
    try:
        # Nobody else can read it then. A folder that is there keeps its rights.
        make_folder(file.parent, 0o700)
    except (FileExistsError, NotADirectoryError, FileNotFoundError) as error:
        why = _NO_FOLDER.get(error.errno or 0, error.strerror)
        raise BadOption(
            f"folder {file.parent} cannot be made: {why}; give the store another folder"
        ) from error
    except OSError as error:
        raise CatalogUnavailable(
            f"folder {file.parent} cannot be made: {error.strerror}"
        ) from error
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise CatalogUnavailable(f"catalog {file} cannot be made: {error.strerror}") from error
