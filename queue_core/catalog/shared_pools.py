"""One pool of connections for all catalogs of this process at one URL.

A process may open a store several times: an application and its libraries, a manager and its
queries. A server has few connections, so they use the same ones. Each catalog on SQLite has a pool
of its own, because it may find another file in the place of its own.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from sqlalchemy import Engine, event

from queue_core.catalog import dialect


@dataclass(slots=True)
class _SharedPool:
    engine: Engine
    #: The objects that use it and have not given it back.
    users: WeakSet[object] = field(default_factory=WeakSet)


_lock = threading.Lock()
_pools: dict[tuple[str, int], _SharedPool] = {}


def borrow(user: object, url: str, idle: int) -> Engine:
    """
    Return an engine for a URL, which others may use too; raises `BadOption`.

    *idle*: how many connections to a server that nobody uses stay open.
    """
    with _lock:
        shared = _pools.get((url, idle))
        if shared is None:
            engine = dialect.connect(url, idle)
            if not dialect.of(engine).shares_pool:
                return engine
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
                event.listen(engine, "checkin", _close)
    engine.dispose()


def _close(connection: object, record: Any) -> None:
    if connection is not None:
        record.close()


def _forget() -> None:
    """Let a forked process open connections of its own."""
    global _lock
    _lock = threading.Lock()
    for shared in _pools.values():
        shared.engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget)
