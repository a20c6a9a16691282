"""Idle connections: closed some seconds after their last use, except for one.

A server has few connections, and an idle process needs only one for its transactions. A thread
closes the others. It runs only while there are others, so that an idle process has no such thread.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any
from weakref import ref

from sqlalchemy import Engine, event

#: Seconds for which a connection that nobody uses stays open beside another one.
IDLE_SECONDS = 10.0

_RETURNED = "ignis_returned"


def close_idle_ones(engine: Engine) -> None:
    """Close connections of an engine that nobody has used for a while, except for the last one."""
    closer = _Closer(engine)
    event.listen(engine, "checkin", closer.returned)
    event.listen(engine, "engine_disposed", closer.disposed)


class _Closer:
    def __init__(self, engine: Engine) -> None:
        # A timer must not keep the engine of a closed catalog.
        self._engine = ref(engine)
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._timer: threading.Timer | None = None
        # One thread starts the timer. The garbage collector may return a connection meanwhile.
        self._starting = threading.RLock()

    def returned(self, _: Any, record: Any) -> None:
        """Note when a connection comes back to the pool."""
        record.info[_RETURNED] = time.monotonic()
        if self._process != os.getpid():
            # Threads do not live on in a forked process, and their locks stay as they were.
            self._begin()
        if self._timer is None:
            self._start_if_many()

    def disposed(self, _: Engine) -> None:
        """End the thread, since all connections are closed; a forked process has none."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _start_if_many(self) -> None:
        engine = self._engine()
        if engine is None:
            return
        with self._starting:
            if _count_open(engine) > 1 and self._timer is None:
                self._timer = timer = threading.Timer(IDLE_SECONDS / 2, self._close)
                timer.daemon = True
                timer.name = "ignis-idle-connections"
                try:
                    timer.start()
                except RuntimeError:
                    # At the end of the process, no thread can be started, and its connections end
                    # anyway.
                    self._timer = None

    def _close(self) -> None:
        engine = self._engine()
        if engine is not None:
            _close_idle(engine)
        # Before the count: a connection that comes back from now on starts another timer.
        self._timer = None
        del engine
        self._start_if_many()


def _close_idle(engine: Engine) -> None:
    before = time.monotonic() - IDLE_SECONDS
    # SQLAlchemy has no public way to close one of several idle connections. No thread can take one
    # while this one holds the lock; a closed one stays in the pool, which opens it again on demand.
    pool: Any = engine.pool
    with pool._pool.mutex:
        # The last one comes first to be used again.
        records = [each for each in pool._pool.queue if each.dbapi_connection is not None]
        for record in records[: len(records) if pool.checkedout() else -1]:
            if record.info.get(_RETURNED, before) <= before:
                record.close()


def _count_open(engine: Engine) -> int:
    """Return how many connections of a pool are open, those in use included."""
    pool: Any = engine.pool
    with pool._pool.mutex:
        idle = sum(each.dbapi_connection is not None for each in pool._pool.queue)
        return idle + int(pool.checkedout())
