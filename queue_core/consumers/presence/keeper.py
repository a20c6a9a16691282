"""The consumer of `get_and_keep`, which holds messages until they are deleted or reset."""

from __future__ import annotations

import threading

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.holders.consumers import KEEPER
from queue_core.consumers.presence.heartbeat import Heartbeat
from queue_core.values.model import Consumer
from queue_core.values.names import of_process

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
                name = f"{KEEPER}{of_process()}"
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
