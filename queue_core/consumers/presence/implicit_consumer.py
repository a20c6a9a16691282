"""This process as a consumer: of `Queue.fire` where none is given, and of `get_and_keep`.

The first sends no heartbeats. So that a purge can tell whether it is in use still, the process
takes a new name each day, and a week is long enough for the last firing under an old one.
"""

from __future__ import annotations

import threading

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.identity.clock import stopwatch
from queue_core.catalog.records import restored
from queue_core.consumers.presence.presence import Heartbeat
from queue_core.values.model import Consumer
from queue_core.values.names import of_keeper, of_process

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
        self._restore: int | None = None

    def consumer(self) -> Consumer:
        """Return the consumer; the first call of a day enlists it."""
        with self._lock:
            now = stopwatch()
            if self._consumer is None or now - self._since > RENEW_AFTER:
                self._consumer = self._catalog.write(self._enlist)
                self._since = now
            return self._consumer

    def _enlist(self, connection: Connection) -> Consumer:
        restore = restored.restored_at(connection)
        if self._consumer is not None and restore != self._restore:
            # A restore fences all processes that were not stopped, this one too.
            consumers.check(connection, self._consumer)
        self._restore = restore
        return consumers.enlist(connection, f"python:{of_process()}", beats=False)


#: Seconds between two heartbeats; a sweep waits for several of them.
BEAT_SECONDS = 10.0


class Keeper:
    """This process as a consumer whose messages are not swept while it runs. Thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._heartbeat: Heartbeat | None = None

    def consumer(self) -> Consumer:
        """Return the consumer; the first call starts it."""
        with self._lock:
            if self._consumer is None:
                name = of_keeper(of_process())
                self._consumer = self._catalog.write(
                    lambda connection: consumers.enlist(connection, name, beats=True)
                )
                self._heartbeat = Heartbeat(self._catalog, self._consumer, BEAT_SECONDS)
                self._heartbeat.start()
            return self._consumer

    def known(self) -> Consumer | None:
        """Return the consumer, if it was started."""
        return self._consumer

    def stop(self) -> None:
        """Stop the consumer. After a while, its messages are swept, or others reset them."""
        with self._lock:
            if self._heartbeat is not None:
                self._heartbeat.stop()
            self._consumer = self._heartbeat = None
