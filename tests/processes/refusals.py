"""Errors of a database after which a transaction is tried again."""

import sqlite3

from sqlalchemy.exc import DBAPIError


def was_late(error: DBAPIError) -> bool:
    """
    Return whether a late transaction of SQLite begins again, because others wrote while it read.

    All other transactions that write have the database from their first statement on.
    """
    code = getattr(error.orig, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_BUSY and not str(error.statement).startswith("BEGIN")
