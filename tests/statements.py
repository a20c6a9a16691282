"""Statements: those that a block executes, and compiled ones, shared by all engines of a process.

A store has an engine of its own, and SQLAlchemy compiles each statement once per engine: once in a
process of a user, and a thousand times in a process of tests.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import LRUCache

from queue_core import Store

_compiled: LRUCache[Any, Any] = LRUCache(2_000)


class _Shared:
    """The cache of one engine, whose keys begin with the kind of the database."""

    def __init__(self, engine: Engine) -> None:
        dialect = engine.dialect
        self._kind = (dialect.name, dialect.driver, dialect.server_version_info)

    def get(self, key: tuple[Any, ...]) -> Any:
        return _compiled.get((self._kind, *key[1:]))

    def __setitem__(self, key: tuple[Any, ...], statement: Any) -> None:
        _compiled[self._kind, *key[1:]] = statement

    def clear(self) -> None:
        """Nothing: others use it too."""


def share() -> None:
    """Let the engines of this process share what they compile."""
    event.listen(Engine, "engine_connect", _share)


def _share(connection: Connection) -> None:
    engine = connection.engine
    if not isinstance(engine._compiled_cache, _Shared):
        engine._compiled_cache = _Shared(engine)


@contextmanager
def heard(engine: Engine | type[Engine], **by_event: Callable[..., Any]) -> Iterator[None]:
    """Let functions hear of events of an engine, or of all engines, within the block."""
    for name, hear in by_event.items():
        event.listen(engine, name, hear)
    try:
        yield
    finally:
        for name, hear in by_event.items():
            event.remove(engine, name, hear)


@contextmanager
def counted(store: Store) -> Iterator[list[str]]:
    """The statements of the block."""
    statements: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        statements.append(statement)

    with heard(store.catalog.engine, before_cursor_execute=note):
        yield statements


@contextmanager
def transactions(store: Store) -> Iterator[list[Connection]]:
    """The transactions that begin in the block."""
    begun: list[Connection] = []
    with heard(store.catalog.engine, begin=begun.append):
        yield begun


def was_late(error: DBAPIError) -> bool:
    """
    Return whether a late transaction of SQLite begins again, because others wrote while it read.

    All other transactions that write have the database from their first statement on.
    """
    code = getattr(error.orig, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_BUSY and not str(error.statement).startswith("BEGIN")
