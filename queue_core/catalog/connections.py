"""Connections of a process: one pool for all of its catalogs at one URL, and waits for a server.

A process may open a store several times: an application and its libraries, a manager and its
queries. A server has few connections, so they use the same ones. Each catalog on SQLite has a pool
of its own, because it may find another file in the place of its own.

If the server has no connection left, this process tries again, in pauses that grow, for about as
long as it would wait for a lock: idle processes close connections after some seconds, and others of
this process may come back to its pool.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakSet

from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError

from queue_core.catalog import dialect
from queue_core.values.backoff import exponential

#: The first pause while the server has no connection left, and the longest one, in seconds.
FIRST_SECONDS, LAST_SECONDS = 0.05, 2.0
_GROWING = exponential(FIRST_SECONDS, max=LAST_SECONDS)

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(slots=True)
class _SharedPool:
    engine: Engine
    #: The objects that use it and have not given it back.
    users: WeakSet[object] = field(default_factory=WeakSet)


_lock = threading.Lock()
_pools: dict[tuple[str, int], _SharedPool] = {}
#: The engines that have ended.
_ended: WeakSet[Engine] = WeakSet()


def borrow(user: object, url: str, idle: int) -> Engine:
    """
    Return an engine for a URL, which others may use too; raises `BadOption`.

    *idle*: how many connections to a server that nobody uses stay open.
    """
    with _lock:
        shared = _pools.get((url, idle))
        if shared is None:
            engine = dialect.connect(url, idle)
            if dialect.of(engine).file_of(engine) is not None:
                return engine
            close_late_ones(engine)
            shared = _pools[url, idle] = _SharedPool(engine)
        shared.users.add(user)
        return shared.engine


def give_back(user: object, engine: Engine) -> None:
    """
    Close the connections of an engine, unless others still use it.

    A late thread may still open one, which is then closed after its transaction.
    """
    with _lock:
        for key, shared in list(_pools.items()):
            if shared.engine is engine:
                shared.users.discard(user)
                if shared.users:
                    return
                del _pools[key]
    end(engine)


def end(engine: Engine) -> None:
    """Close the connections of an engine, and those that threads still use once they come back."""
    _ended.add(engine)
    engine.dispose()


def close_late_ones(engine: Engine) -> None:
    """
    Close connections that come back after the end of an engine, such as those of late threads.

    SQLAlchemy would leave them to the garbage collector, and their sessions to the server.
    """

    @event.listens_for(engine, "checkin")
    def checked_in(connection: object, record: Any) -> None:
        if connection is not None and engine in _ended:
            record.close()


def _forget() -> None:
    """Let a forked process open connections of its own."""
    global _lock
    _lock = threading.Lock()
    for shared in _pools.values():
        shared.engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait after each attempt, without end; random, so that not all meet."""
    for attempt in itertools.count(1):
        longest = _GROWING.seconds(attempt)
        yield random.uniform(longest / 2, longest)


def wait_for(connect: Callable[[], Result], database: dialect.Dialect, shown: str) -> Result:
    """
    Return what *connect* returns; call it again while the server has no connection left.

    *shown*: the catalog's URL without secrets. Raises the last error after `busy_seconds`.
    """
    end = time.monotonic() + database.busy_seconds
    logged, following = False, pauses()
    while True:
        try:
            return connect()
        except DBAPIError as error:
            if not database.errors.is_crowded(error) or time.monotonic() > end:
                raise
        pause = next(following)
        if not logged and pause >= LAST_SECONDS / 2:
            logged = True
            _log.warning("the server of catalog %s has no connection left; waiting for one", shown)
        time.sleep(pause)
