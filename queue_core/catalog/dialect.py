"""Find the class for the catalog's database, which hides the differences between databases.

No other module asks which database it is. A database without a class raises
`NotImplementedError`. Only the class of the database in use is imported.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

# `x as x` says that x is exported.
from queue_core.catalog.databases.expressions import among as among
from queue_core.catalog.databases.expressions import each_of as each_of
from queue_core.catalog.databases.expressions import not_indexed as not_indexed
from queue_core.catalog.databases.expressions import now as now
from queue_core.catalog.databases.expressions import one_of as one_of
from queue_core.catalog.databases.expressions import one_of_given as one_of_given
from queue_core.catalog.databases.interface import Dialect as Dialect
from queue_core.catalog.databases.interface import StillLocked as StillLocked
from queue_core.errors import BadOption
from queue_core.values.address import masked, masked_query

_SQLITE = "sqlite:///"
#: How many stay open in a process with several threads, such as a pool or a web service.
IDLE_CONNECTIONS = 4
#: Seconds for which a task waits for a lock that a caller's transaction may keep for long:
#: meanwhile, the task holds other locks, or other tasks wait for it.
TASK_LOCK_SECONDS = 2.0


@lru_cache(maxsize=4)
def _named(name: str) -> Dialect | None:
    match name:
        case "sqlite":
            from queue_core.catalog.databases.sqlite import Sqlite

            return Sqlite()
        case "postgresql":
            from queue_core.catalog.databases.postgresql import Postgresql

            return Postgresql()
    return None


def of(database: Connection | Engine) -> Dialect:
    """Return the dialect of a connection or an engine."""
    name = database.dialect.name
    dialect = _named(name)
    if dialect is None:
        raise NotImplementedError(
            f"a catalog in {name}: queue_core.catalog.databases has no class for it"
        )
    return dialect


def connect(url: str, idle: int = IDLE_CONNECTIONS) -> Engine:
    """
    Return an engine for ``sqlite:///…`` or ``postgresql+psycopg://…``; raises `BadOption`.

    *idle*: how many connections to a server that nobody uses stay open.
    """
    try:
        # The path of a file is not parsed: a folder may have any name.
        family = "sqlite" if url.startswith(_SQLITE) else make_url(url).get_backend_name()
    except (ArgumentError, ValueError):
        # A port that is not a number is a ValueError, whose text quotes the whole URL.
        raise BadOption(f"catalog={hidden(url)!r} is not a database URL") from None
    if family != "sqlite" and url.partition("?")[0].count("@") > 1:
        # Which @ ends the password is a guess, and errors of drivers would quote the rest of it.
        raise BadOption(
            f"catalog={masked(url)!r} has more than one @: write %40 for each @ in the user's name "
            "or the password"
        )
    dialect = _named(family)
    if dialect is None:
        raise BadOption(
            f"catalog={hidden(url)!r}: use sqlite:///… or postgresql+psycopg://…, not {family}"
        )
    return dialect.connect(url, hidden(url), idle)


def insert_new(connection: Connection, table: Table) -> Any:
    """Return an INSERT that has ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    return of(connection).insert_new(table)


def upsert(database: Dialect, table: Table, *names: str) -> Any:
    """Return an INSERT that gives a row which is there the new values of some columns."""
    new = database.insert_new(table)
    values = {name: new.excluded[name] for name in names}
    return new.on_conflict_do_update(index_elements=list(table.primary_key), set_=values)


def after(seconds: float) -> ColumnElement[int]:
    """Return the time *seconds* after now; negative: before."""
    return now() + int(seconds * 1e6)


_CLOCK = select(now())


def read_clock(connection: Connection) -> int:
    """Return the time by the database's clock, in microseconds since 1970."""
    return int(connection.scalar(_CLOCK) or 0)


@lru_cache(maxsize=64)
def hidden(url: str) -> str:
    """Return the URL without its secrets. Each transaction asks for it."""
    if url.startswith(_SQLITE):
        return url
    try:
        return masked_query(make_url(url).render_as_string(hide_password=True))
    except (ArgumentError, ValueError):
        return masked(url)
