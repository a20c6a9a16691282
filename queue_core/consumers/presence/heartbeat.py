"""Keeps a consumer alive in the catalog, so that its messages are not swept."""

from __future__ import annotations

from contextlib import suppress

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.errors import Conflict, IgnisError
from queue_core.support.loop import Loop
from queue_core.values.model import Consumer

#: Seconds to wait for a beat in progress at the end.
STOP_SECONDS = 2.0


class Heartbeat:
    """
    A thread of the consumer's process that regularly reports that it is alive.

    There are *interval* seconds between two beats, or as many as the last one has returned.
    """

    def __init__(self, catalog: Catalog, consumer: Consumer, interval: float) -> None:
        self.consumer = consumer
        self._catalog = catalog
        self._fenced: Conflict | None = None
        self._loop = Loop("heartbeat", self._beat_once, every=interval)
        #: Has the thread send the next beat now.
        self.hurry = self._loop.wake

    def start(self) -> None:
        """Start the thread."""
        self._loop.start()

    def stop(self) -> None:
        """Stop beating. After a while, the consumer counts as dead."""
        # A beat after the end of the store would leave its connection open.
        self._loop.stop(STOP_SECONDS)

    def check(self) -> None:
        """Raise `ConsumerFenced` when the consumer was started again elsewhere."""
        if self._fenced is not None:
            raise self._fenced

    def _beat(self) -> float | None:
        """Send a beat; return the seconds until the next one, or None for the interval."""
        self._catalog.write(lambda connection: consumers.heartbeat(connection, self.consumer))
        return None

    def _beat_once(self) -> float | None:
        # While the catalog is unavailable, the consumer's own work reports it.
        with suppress(IgnisError):
            try:
                return self._beat()
            except Conflict as error:
                self._fenced = error
                self._loop.end()
        return None
