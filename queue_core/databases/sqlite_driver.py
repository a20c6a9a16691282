"""Connections to SQLite that leave no lock when they end."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any
from weakref import ref

#: Of so many cursors, those that are gone are forgotten.
_MANY = 32


class Driver(sqlite3.Connection):
    """A connection that ends as a whole, even if the garbage collector has not found a cursor."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        # No weak set: Python would ignore an interrupt within its callbacks.
        self._cursors: list[ref[sqlite3.Cursor]] = []

    def cursor(self, *given: Any) -> Any:
        """Return a new cursor."""
        made = super().cursor(*given)
        if len(self._cursors) >= _MANY:
            self._cursors = [each for each in self._cursors if each() is not None]
        self._cursors.append(ref(made))
        return made

    def rollback(self) -> None:
        """Roll back, and end all statements: one that still reads would keep its lock."""
        super().rollback()
        for each in self._cursors:
            cursor = each()
            if cursor is not None:
                # Another thread may use it, and ends it.
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
