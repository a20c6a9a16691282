"""Nothing waits for the disk: a killed process loses nothing by it, and tests cut no power.

`tests.servers` gives PostgreSQL the same settings.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, event

#: Set in the environment of this process, for its children.
_BEGUN = "TESTS_UNSYNCED"
_DONE = "unsynced"


def begin() -> None:
    """Sync neither the files nor the SQLite catalogs of this process and its children."""
    os.environ[_BEGUN] = "1"
    os.fsync = lambda fd: None
    if not event.contains(Engine, "engine_connect", _relax):
        event.listen(Engine, "engine_connect", _relax)


def follow() -> None:
    """Do as the tests do, in a child of theirs. A soak of its own syncs everything."""
    if _BEGUN in os.environ:
        begin()


def _relax(connection: Connection) -> None:
    if connection.dialect.name != "sqlite" or _DONE in connection.info:
        return
    # Not within a transaction, and not for a damaged file, of which the test may want to know.
    with suppress(sqlite3.Error):
        driver: Any = connection.connection.driver_connection
        driver.execute("PRAGMA synchronous=OFF").close()
        connection.info[_DONE] = True
