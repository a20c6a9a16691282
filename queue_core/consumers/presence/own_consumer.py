"""The consumer of `Queue.fire` where none is given: this process, under a name of its own.

It sends no heartbeats. So that a purge can tell whether it is in use still, the process takes a new
name each day, and a week is long enough for the last firing under an old one.
"""

from __future__ import annotations

import threading

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.identity.clock import stopwatch
from queue_core.catalog.records import restored
from queue_core.values.model import Consumer
from queue_core.values.names import of_process

#: Microseconds for which a name is used.
RENEW_AFTER = 24 * 3600 * 1_000_000


class OwnConsumer:
    """This process as a consumer of a store. Thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._since = 0
        #: The restore after which it was enlisted.
        self._restore: str | None = None

    def consumer(self) -> Consumer:
        """Return the consumer; the first call of a day enlists it."""
        with self._lock:
            now = stopwatch()
            if self._consumer is None or now - self._since > RENEW_AFTER:
                self._consumer = self._catalog.write(self._enlist)
                self._since = now
            return self._consumer

    def _enlist(self, connection: Connection) -> Consumer:
        restore = restored.last_restore(connection)
        if self._consumer is not None and restore != self._restore:
            # A restore fences all processes that were not stopped, this one too.
            consumers.check(connection, self._consumer)
        self._restore = restore
        return consumers.enlist(connection, f"python:{of_process()}", beats=False)
