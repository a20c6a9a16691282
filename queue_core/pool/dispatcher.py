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
from queue_core.catalog.poller import Due, Poller
from queue_core.consumers.manager import QueueConsumerManager, Reason
from queue_core.errors import CatalogUnavailable
from queue_core.model import QueueInfo

#: Seconds after which consumers look for work although nothing has changed.
BLIND_SECONDS = 1.0
#: Seconds after which the thread notices that it shall end, or look earlier.
_SLICE_SECONDS = 0.2


class QueueDispatcher:
    """A queue's manager, awake. Get it from `open_desk`; close it as often."""

    def __init__(self, catalog: Catalog, queue: QueueInfo) -> None:
        self.manager = QueueConsumerManager(queue.name)
        self.users = 0
        self._catalog = catalog
        self._ended = threading.Event()
        # In a store in which others are busy, ten looks a second that find nothing are enough.
        self._poller = Poller(
            Watch(catalog), first=0.1, last=0.1, blind=BLIND_SECONDS, sleep=self._ended.wait
        )
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
        """Look again after *seconds*, if nothing changes before."""
        self._poller.look_in(seconds)

    def _run(self) -> None:
        with self._poller as poller:
            while not self._ended.is_set():
                try:
                    due = poller.wait(time.monotonic() + _SLICE_SECONDS)
                except CatalogUnavailable:
                    # Its consumers will report that.
                    self._ended.wait(BLIND_SECONDS)
                    continue
                if due is not None:
                    if not self.manager.has_work:
                        # The last look found nothing.
                        poller.pause()
                    poller.looked()
                    self.manager.notify_arrival(_REASONS[due])


_REASONS = {Due.CHANGE: Reason.ARRIVAL, Due.TIME: Reason.AVAILABLE}
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
