"""Connection poolers: refuse one that gives each transaction another connection of the server.

Statements that are prepared, limits of waits and `LISTEN` belong to a session. In such a mode, a
transaction would run the prepared statements of another client, and no process would be notified.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from queue_core.errors import BadOption

#: The problem of a catalog whose session has prepared statements of others, or lacks its own.
SHARED_SESSIONS = (
    "is behind a connection pooler that gives each transaction another connection of the server; "
    "set pool_mode=session for this database, as PgBouncer names it"
)
#: Seconds to wait for a connection that others may hold, and for one that this session has.
PROBE_SECONDS, WAIT_SECONDS = 1.0, 2.0

_MARK = "SELECT set_config('ignis.session', %s, false)"
#: How PgBouncer refuses a transaction if it gives each statement another connection.
_STATEMENTS = "statement pooling mode"
#: What `bounded_waits` says of a wait that it has ended.
_NO_ANSWER = "has not answered"
_READ_MARK = "SELECT current_setting('ignis.session', true)"


def check_session(connection: Any, another: Callable[[], Any], shown: str) -> None:
    """
    Raise `BadOption` if a pooler does not keep a connection of the server for *connection*.

    Args:
        connection: A connection of psycopg to a pooler, not in a transaction.
        another: Opens another one to the same address.
        shown: The address for the error.
    """
    from psycopg import OperationalError

    try:
        is_shared = _is_shared(connection, another)
    except OperationalError as error:
        is_shared = _STATEMENTS in str(error)
        if not is_shared:
            raise
    if is_shared:
        raise BadOption(
            f"catalog={shown!r} is a connection pooler that gives each transaction or statement "
            "another connection of the server, and ignis needs sessions: set pool_mode=session "
            "for this database, as PgBouncer names it, or use the address of the server"
        )


def _is_shared(connection: Any, another: Callable[[], Any]) -> bool:
    """Return whether another connection to the pooler meets the marked one of the server."""
    from psycopg import OperationalError

    mark = secrets.token_hex(8)
    _value(connection, _MARK, mark)
    other = another()
    try:
        other.answer_seconds = PROBE_SECONDS
        try:
            # Its transaction takes a connection of the server, which may be the marked one.
            seen = other.execute(_READ_MARK).fetchone()[0]
        except OperationalError:
            # It waits until a session ends, if sessions keep theirs.
            seen = None
        usual, connection.answer_seconds = connection.answer_seconds, WAIT_SECONDS
        try:
            is_shared = bool(seen == mark or _value(connection, _READ_MARK) != mark)
        except OperationalError as error:
            # A session would have its connection of the server, and this one waits for one.
            if _NO_ANSWER not in str(error):
                raise
            return True
        connection.answer_seconds = usual
        return is_shared
    finally:
        other.close()


def _value(connection: Any, query: str, *given: str) -> Any:
    """Return the only value of a query, in a transaction of its own."""
    value = connection.execute(query, given).fetchone()[0]
    connection.commit()
    return value
