"""Desks: of each queue that is consumed in this process one manager, and a thread that wakes it.

The thread hears when the catalog changes, by whichever process, and has the manager tell a consumer
that there may be work. What becomes available by the passing of time alone, as a message that was
held until now, or what was freed by whoever does not say so, is found by looking once a second.
"""

from __future__ import annotations

import threading
import time

from queue_core.catalog.database import Catalog
from queue_core.catalog.notifications import Watch
from queue_core.consumers.manager import QueueConsumerManager, Reason
from queue_core.errors import CatalogUnavailable
from queue_core.model import QueueInfo

#: Seconds after which it is looked whether there is work, though nobody has said that there is.
BLIND_SECONDS = 1.0
#: Seconds between two looks at a store in which others are busy, while they find nothing.
LOOK_SECONDS = 0.1
#: At the end, the thread is waited for as long as this at most.
_SLICE_SECONDS = 0.2


class QueueDispatcher:
    """A queue's manager, awake. Get it from `open_desk`; close it as often."""

    def __init__(self, catalog: Catalog, queue: QueueInfo) -> None:
        self.manager = QueueConsumerManager(queue.name)
        self.users = 0
        self._catalog = catalog
        self._ended = threading.Event()
        #: When to look at the latest, since somebody may be gone who went first.
        self._look_at = 0.0
        self._thread = threading.Thread(
            target=self._run, name=f"ignis-desk-{queue.name}", daemon=True
        )

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(10 * _SLICE_SECONDS)

    def look_in(self, seconds: float) -> None:
        """Look again after so many seconds, if nothing happens before."""
        self._look_at = time.monotonic() + seconds

    def _run(self) -> None:
        looked_at = 0.0
        with Watch(self._catalog) as watch:
            while not self._ended.is_set():
                try:
                    reason = self._wait(watch)
                except CatalogUnavailable:
                    # Those who consume will say so.
                    self._ended.wait(BLIND_SECONDS)
                    continue
                if reason is not None:
                    if not self.manager.has_work:
                        # The last look found nothing.
                        self._ended.wait(looked_at + LOOK_SECONDS - time.monotonic())
                    looked_at = time.monotonic()
                    self.manager.notify_arrival(reason)

    def _wait(self, watch: Watch) -> Reason | None:
        """Wait for a reason to look; None when the desk is closed."""
        blind = time.monotonic() + BLIND_SECONDS
        while not self._ended.is_set():
            end = min(blind, self._look_at) if self._look_at else blind
            left = end - time.monotonic()
            if left <= 0:
                self._look_at = 0.0
                return Reason.AVAILABLE
            if watch.wait(min(left, _SLICE_SECONDS)):
                return Reason.ARRIVAL
        return None


_lock = threading.Lock()
_desks: dict[tuple[str, int], QueueDispatcher] = {}


def open_dispatcher(catalog: Catalog, queue: QueueInfo) -> QueueDispatcher:
    """The desk of a queue, which all consumers of it in this process share."""
    key = (catalog.url, queue.id)
    with _lock:
        desk = _desks.get(key)
        if desk is None:
            desk = _desks[key] = QueueDispatcher(catalog, queue)
            desk.start()
        desk.users += 1
        return desk


def close_dispatcher(catalog: Catalog, queue: QueueInfo) -> None:
    """One of its users needs the desk no more."""
    key = (catalog.url, queue.id)
    with _lock:
        desk = _desks[key]
        desk.users -= 1
        if desk.users:
            return
        del _desks[key]
    desk.stop()
