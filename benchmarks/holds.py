"""Note the transactions of a store, and for how long those that may write hold their locks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from sqlalchemy import event

from queue_core import Store
from queue_core.catalog import dialect

#: After how many transactions the log of SQLite is written back, which takes about as many pages as
#: SQLite waits for.
_WRITTEN_BACK_AFTER = 20


class Hold(NamedTuple):
    """One transaction that may write: seconds from its first lock until its commit is done."""

    wall: float
    #: Of its thread: on SQLite with the database, and with PostgreSQL only this side.
    cpu: float


class Transactions:
    """The transactions of a store in this process."""

    def __init__(self) -> None:
        #: How many were begun.
        self.begun = 0
        #: Those that have locked others out from their beginning on.
        self.early = 0
        #: Those that may write.
        self.holds: list[Hold] = []

    @property
    def longest(self) -> Hold:
        """The longest times of all, of any two transactions."""
        return Hold(
            max((each.wall for each in self.holds), default=0.0),
            max((each.cpu for each in self.holds), default=0.0),
        )


@contextmanager
def noted(store: Store) -> Iterator[Transactions]:
    """Note the transactions of a store meanwhile."""
    engine, found = store.catalog.engine, Transactions()
    kind = type(dialect.of(engine))
    begin, take = kind.begin, kind.take

    is_sqlite = engine.dialect.name == "sqlite"

    def begin_noted(
        self: Any, connection: Any, *, write: bool, late: bool = False, **how: Any
    ) -> None:
        found.begun += 1
        if write and is_sqlite:
            # SQLite does it within the commit, but after the lock is free.
            connection.connection.driver_connection.execute("PRAGMA wal_autocheckpoint = 0")
        begin(self, connection, write=write, late=late, **how)
        late = late and not self.writes_in_parallel
        connection.info["late"] = write and late
        if write and not late:
            found.early += 1
            # SQLite has its one lock now, and PostgreSQL takes its locks from now on.
            connection.info["since"] = Hold(time.perf_counter(), time.thread_time())

    def take_noted(self: Any, connection: Any) -> None:
        take(self, connection)
        if connection.info.pop("late", False):
            connection.info["since"] = Hold(time.perf_counter(), time.thread_time())

    def given_back(_: Any, record: Any) -> None:
        since = record.info.pop("since", None)
        if since is not None:
            wall, cpu = time.perf_counter() - since.wall, time.thread_time() - since.cpu
            found.holds.append(Hold(wall, cpu))
            if is_sqlite:
                record.dbapi_connection.execute("PRAGMA wal_autocheckpoint = 1000")
                if len(found.holds) % _WRITTEN_BACK_AFTER == 0:
                    record.dbapi_connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    event.listen(engine, "checkin", given_back)
    with (
        mock.patch.object(kind, "begin", begin_noted),
        mock.patch.object(kind, "take", take_noted),
    ):
        yield found
    event.remove(engine, "checkin", given_back)
