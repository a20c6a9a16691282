"""Nothing waits for the disk: a killed process loses nothing by it, and tests cut no power.

`tests.servers` gives PostgreSQL the same settings.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

from sqlalchemy import Connection, Engine, event

_DONE = "unsynced"


def begin() -> None:
    """Let neither files nor the SQLite catalogs of this process be synced."""
    os.fsync = lambda _: None
    if not event.contains(Engine, "engine_connect", _relax):
        event.listen(Engine, "engine_connect", _relax)


def _relax(connection: Connection) -> None:
    if connection.dialect.name != "sqlite" or _DONE in connection.info:
        return
    # Within a transaction that another one has begun, it is too late.
    with suppress(sqlite3.OperationalError):
        driver = connection.connection.driver_connection
        driver.execute("PRAGMA synchronous=OFF").close()
        connection.info[_DONE] = True
