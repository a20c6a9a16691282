"""Connections to PostgreSQL whose waits are bounded.

The server limits the time of a statement and of its waits for locks. A frozen server, or a network
that drops packets, enforces no limit. So the client stops waiting a little later, and closes the
connection. Limits that the role, the database or the URL already set stay in force, and the
client's limit follows the server's.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import Engine, event

from queue_core.catalog.databases import takeovers
from queue_core.catalog.databases.poolers import check_session
from queue_core.errors import BadOption

#: Seconds: for a new connection, for a sign of life from a pooled one, and for a statement.
CONNECT_SECONDS = 10
PING_SECONDS = 10.0
STATEMENT_SECONDS = 60.0
#: Seconds after an answer in which a connection needs to give no sign of life.
FRESH_SECONDS = 0.1
#: How much longer than the server the client waits.
MARGIN_SECONDS = 10.0

# A lost peer is noticed within 30 seconds. Platforms ignore the options that they lack.
_TCP = {
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# A role or a database may set another encoding, perhaps one that the driver cannot read.
_TEXTS = {"client_encoding": "UTF8"}
#: The code of a warning that a commit was not confirmed by the standbys for which it waited.
_WARNED = "01000"
# Not by the parameter `options`, which connection poolers refuse.
_LIMIT = "SELECT set_config(name, %s, false) FROM pg_settings WHERE name = %s AND setting = '0'"
# No scans of whole tables: one that is small when a statement is planned may have many versions of
# its rows a moment later, while an index, mostly in memory, is never much slower. No bitmaps: they
# read all versions of a row before the newest one is picked. No JIT: where no index serves, a
# server older than 18 adds 10^10 to the cost, and would compile the statement. Read committed: a
# statement must see what was committed while one before it waited for a lock.
_READ_LIMIT = (
    "SELECT setting, pg_backend_pid(), set_config('random_page_cost', '0.1', false), "
    "set_config('enable_bitmapscan', 'off', false), "
    "set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false), "
    "set_config('default_transaction_isolation', 'read committed', false) "
    "FROM pg_settings WHERE name = 'statement_timeout'"
)


#: Older versions do not wake up from a wait without data, so the client cannot limit it.
OLDEST_PSYCOPG = (3, 2, 11)


def check_driver(engine: Engine, shown: str) -> None:
    """Raise `BadOption` if the driver is too old; *shown* is the catalog's URL for the error."""
    there = getattr(engine.dialect, "psycopg_version", OLDEST_PSYCOPG)
    if there < OLDEST_PSYCOPG:
        least, version = (".".join(map(str, each)) for each in (OLDEST_PSYCOPG, there))
        raise BadOption(
            f"catalog={shown!r} needs psycopg {least} or later, and this is {version}, which "
            "waits for ever for a server that does not answer: pip install 'ignis-queue[postgres]'"
        )


def bound_waits(engine: Engine, lock_seconds: float) -> None:
    """Limit all waits of an engine's connections; *lock_seconds* is the wait for one lock."""
    ping = engine.dialect.do_ping
    checked = False

    @event.listens_for(engine, "do_connect")
    def connect(_: Any, __: Any, args: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
        nonlocal checked
        given = {"connect_timeout": CONNECT_SECONDS} | _TCP | parameters | _TEXTS
        another = partial(_connection_class().connect, *args, **given)
        connection = another()
        try:
            process = _limit(connection, lock_seconds)
            # A pooler makes up the process id that it tells its clients.
            if not checked and process != connection.info.backend_pid:
                check_session(connection, another, engine.url.render_as_string())
            checked = True
            takeovers.look(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def ping_briefly(dbapi_connection: Any) -> bool:
        if time.monotonic() - dbapi_connection.answered_at < FRESH_SECONDS:
            return True
        usual = dbapi_connection.answer_seconds
        dbapi_connection.answer_seconds = PING_SECONDS
        try:
            return bool(ping(dbapi_connection))
        finally:
            dbapi_connection.answer_seconds = usual

    engine.dialect.do_ping = ping_briefly  # type: ignore[method-assign]


def _limit(connection: Any, lock_seconds: float) -> int:
    """Set the server's limits, where there are none, and the client's; return its process id."""
    connection.answer_seconds = CONNECT_SECONDS
    connection.autocommit = True
    limits = {"statement_timeout": STATEMENT_SECONDS, "lock_timeout": lock_seconds}
    for name, seconds in limits.items():
        connection.execute(_LIMIT, [f"{seconds * 1000:.0f}", name])
    milliseconds, process, *_ = connection.execute(_READ_LIMIT).fetchone()
    connection.autocommit = False
    connection.add_notice_handler(connection.warn)
    connection.answer_seconds = int(milliseconds) / 1000 + MARGIN_SECONDS
    return int(process)


@lru_cache(maxsize=1)
def _connection_class() -> Any:
    # The driver is an optional dependency.
    import psycopg

    class NotConfirmed(psycopg.OperationalError):
        """A commit that no standby may know: the server ended its wait for them."""

        outcome_unknown = True

    class BoundedConnection(psycopg.Connection[Any]):
        """A connection that is closed if the server does not answer in time."""

        #: Seconds to wait for an answer.
        answer_seconds = STATEMENT_SECONDS
        #: When it has answered last.
        answered_at = 0.0
        #: What the server has warned of since the last commit began.
        warning: str | None = None

        def warn(self, notice: Any) -> None:
            """Note a warning of the server."""
            if notice.sqlstate == _WARNED:
                self.warning = f"{notice.message_primary}: {notice.message_detail}"

        def commit(self) -> None:
            """Commit; raises an error if only the primary knows of it, though standbys should."""
            self.warning = None
            super().commit()
            if self.warning is not None:
                raise NotConfirmed(self.warning)

        def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
            """Wait for an answer; raises `OperationalError` if none comes in time."""
            answer = super().wait(self._bounded(gen), *args, **kwargs)
            self.answered_at = time.monotonic()
            return answer

        def _bounded(self, gen: Any) -> Generator[Any, Any, Any]:
            end = time.monotonic() + self.answer_seconds
            try:
                state = next(gen)
                while True:
                    # The driver calls this when data is ready, and ten times a second without any.
                    ready = yield state
                    if not ready and time.monotonic() > end:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(
                            f"the server has not answered for {self.answer_seconds:g} seconds"
                        )
                    state = gen.send(ready)
            except StopIteration as done:
                return done.value

    return BoundedConnection
