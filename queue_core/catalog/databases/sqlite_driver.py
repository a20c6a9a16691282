"""Connections to SQLite: none leaves a lock when it ends, and a forked process inherits none.

SQLite keeps one table for each process and file of the locks that its connections hold. A fork
copies this table, but not the locks. With a connection that was open at the fork, each new
connection of the child to this file would believe that it holds locks, and write into a log that
other processes remove. A child can neither close nor use such a connection. So a process closes its
idle connections before it forks, and its child refuses each file that is still open then, whoever
has opened it.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from contextlib import suppress
from typing import Any, NoReturn
from weakref import WeakValueDictionary, ref

from sqlalchemy import Engine

from queue_core.errors import Invalid

#: At this number of cursors, those that are gone are forgotten.
_MANY = 32

_engines: WeakValueDictionary[int, Engine] = WeakValueDictionary()
_drivers: dict[int, ref[Driver]] = {}
#: The device and the inode of each file that was open when this process was forked.
_inherited: set[tuple[int, int]] = set()


class _Cursor(sqlite3.Cursor):
    """A cursor that another thread may close: Python alone would let it do so within a fetch."""

    connection: Driver

    def __next__(self) -> Any:
        with self.connection.fetching:
            return super().__next__()

    def fetchone(self) -> Any:
        with self.connection.fetching:
            return super().fetchone()

    def fetchmany(self, *given: Any, **options: Any) -> list[Any]:
        with self.connection.fetching:
            return super().fetchmany(*given, **options)

    def fetchall(self) -> list[Any]:
        with self.connection.fetching:
            return super().fetchall()


class Driver(sqlite3.Connection):
    """A connection that ends as a whole, even if the garbage collector has not found a cursor."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        #: Held while rows are read, and while cursors are closed.
        self.fetching = threading.Lock()
        # No weak set: Python would ignore an interrupt within its callbacks.
        self._cursors: list[ref[sqlite3.Cursor]] = []
        _drivers[id(self)] = ref(self)

    def cursor(self, factory: Any = _Cursor) -> Any:
        """Return a new cursor."""
        made = super().cursor(factory)
        if len(self._cursors) >= _MANY:
            self._cursors = [each for each in self._cursors if each() is not None]
        self._cursors.append(ref(made))
        return made

    def rollback(self) -> None:
        """Roll back, and end all statements: one that still reads would keep its lock."""
        super().rollback()
        with self.fetching:
            for each in self._cursors:
                cursor = each()
                if cursor is not None:
                    # Another thread may execute it, and ends it.
                    with suppress(sqlite3.ProgrammingError):
                        cursor.close()
            self._cursors.clear()

    def close(self) -> None:
        """Roll back and close; with an open statement, SQLite would keep the locks."""
        try:
            # It may be closed already, or the disk may fail.
            with suppress(sqlite3.Error):
                self.rollback()
        finally:
            super().close()
            _drivers.pop(id(self), None)


class _Inherited(Driver):
    """A connection of the process that this one was forked from, which stays as it is."""

    def cursor(self, *given: Any) -> NoReturn:
        raise Invalid(_refusal("this connection to a catalog"))

    def commit(self) -> NoReturn:
        raise Invalid(_refusal("this connection to a catalog"))

    def rollback(self) -> None:
        """Leave the transaction to the parent."""

    def close(self) -> None:
        """Leave the connection to the parent."""


def close_before_forks(engine: Engine) -> None:
    """Close the idle connections of an engine before each fork."""
    _engines[id(engine)] = engine


def check_own(file: str) -> None:
    """Raise `Invalid` if a file was open in the process that this one was forked from."""
    if _inherited:
        with suppress(FileNotFoundError):
            status = os.stat(file)
            if (status.st_dev, status.st_ino) in _inherited:
                raise Invalid(_refusal(f"catalog {file}"))


def _refusal(what: str) -> str:
    return (
        f"{what} was in use when this process was forked, so this process cannot use it; nothing "
        "was changed. Start the process with the method spawn or forkserver of multiprocessing, "
        "or fork it before its parent opens the store"
    )


def _close_idle() -> None:
    for reference in _engines.valuerefs():
        engine = reference()
        if engine is not None:
            engine.dispose()


def _leave_alone() -> None:
    for each in _drivers.values():
        driver = each()
        if driver is not None:
            driver.__class__ = _Inherited
            # It is never freed, which would close it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(driver))
    _drivers.clear()
    for name in os.listdir("/dev/fd"):
        # One of them is that of the folder.
        with suppress(OSError):
            status = os.fstat(int(name))
            _inherited.add((status.st_dev, status.st_ino))


os.register_at_fork(before=_close_idle, after_in_child=_leave_alone)
