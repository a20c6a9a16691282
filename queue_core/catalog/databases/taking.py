"""The wait of a writer until SQLite's file is free.

SQLite itself would try less and less often, down to ten times a second. A writer that has waited
for long would then lose to newer ones, and starve among many processes. Here all try at the same
pace, but for the first in line: it tries so often that it hardly waits, which many could not do
without keeping the processors busy. The line is a lock of the database's folder, which the kernel
releases when its process ends. It decides only who tries more often; the file itself is SQLite's.
"""

from __future__ import annotations

import fcntl
import os
import random
import sqlite3
import time
from contextlib import suppress
from typing import Any

#: The pause between two attempts: seconds, from and to.
PAUSE_SECONDS = (0.001, 0.005)
#: The same for the first in line.
FIRST_PAUSE_SECONDS = (0.0001, 0.0003)
#: The primary code of an error is in its last byte.
_PRIMARY = 0xFF
_TAKEN = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def when_free(driver: Any, path: str, statement: str, seconds: float) -> None:
    """Execute a statement as soon as others let it, or raise its error after some seconds."""
    end = time.monotonic() + seconds
    line = None
    try:
        while True:
            try:
                driver.execute(statement)
            except sqlite3.Error as error:
                is_taken = error.sqlite_errorcode & _PRIMARY in _TAKEN
                if not is_taken or time.monotonic() >= end:
                    raise
            else:
                return
            line = line or WritersLine(path)
            pauses = FIRST_PAUSE_SECONDS if line.is_first() else PAUSE_SECONDS
            time.sleep(random.uniform(*pauses))
    finally:
        if line is not None:
            line.leave()


class WritersLine:
    """The line of those who wait for a file, of whom only the first is known."""

    def __init__(self, path: str) -> None:
        self._folder: int | None = None
        self._is_first = False
        # The file itself must not be opened: closing it would give up all locks of the process.
        with suppress(OSError):
            self._folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)

    def is_first(self) -> bool:
        """Return whether this writer is the first, as it may have become."""
        if not self._is_first and self._folder is not None:
            # Not all file systems have locks of folders.
            with suppress(OSError):
                fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._is_first = True
        return self._is_first

    def leave(self) -> None:
        """Let another one be the first, even if a fork has copied the open folder."""
        if self._folder is not None:
            if self._is_first:
                fcntl.flock(self._folder, fcntl.LOCK_UN)
            os.close(self._folder)
