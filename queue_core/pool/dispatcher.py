"""Dispatchers: for each magazine consumed in this process, a manager and a thread that wakes it.

The thread is notified when any process changes the catalog. It then has the manager notify a
consumer that there may be work. Messages can become available without a change, such as a held
message that becomes due; the thread finds them by looking once a second, unless a heartbeat has
seen that the queue is empty.
"""

from __future__ import annotations

import os
import threading
import time
from math import inf

from queue_core.catalog.database import Catalog
from queue_core.catalog.poller import BLIND_SECONDS, Due, Poller, Watch
from queue_core.consumers.manager import NotifyReason, QueueConsumerManager
from queue_core.errors import CatalogUnavailable
from queue_core.support.loop import Loop
from queue_core.values.model import Magazine, QueueInfo

#: Seconds after which the thread notices that it must end, or look earlier.
SLICE_SECONDS = 0.2
#: Seconds to wait for a look in progress at the end.
STOP_SECONDS = 2.0


class QueueDispatcher:
    """A magazine's manager and its thread; opened and closed by `open_dispatcher` and its pair."""

    def __init__(self, catalog: Catalog, queue: QueueInfo, magazine: Magazine) -> None:
        self.key = (catalog.url, catalog.store, queue.id, magazine)
        self.manager = QueueConsumerManager(queue.name)
        self.users = 0
        #: When a heartbeat began that saw the queue empty, if nothing has changed since.
        self.quiet_at = -inf
        # In a queue that others keep busy, ten empty looks a second are enough.
        watch = Watch(catalog, lambda: queue.sources)
        self.loop = Loop(f"dispatcher-{queue.name}", self._look, at_end=watch.close)
        self._poller = Poller(watch, first=0.02, last=0.1, sleep=self.loop.sleep)

    def look_in(self, seconds: float) -> None:
        """Look again after *seconds*, if nothing changes before."""
        self._poller.look_in(seconds)

    def _look(self) -> float:
        try:
            due = self._poller.wait(time.monotonic() + SLICE_SECONDS)
        except CatalogUnavailable:
            # Its consumers will report the error.
            return BLIND_SECONDS
        quiet = self.quiet_at + BLIND_SECONDS - time.monotonic()
        if due is Due.CHANGE:
            self.quiet_at = -inf
        if due is Due.TIME and quiet > 0 and not self.manager.has_failed:
            self._poller.looked(blind=quiet)
        elif due is not None:
            in_vain = self.manager.was_in_vain
            if in_vain:
                self._poller.pause()
            self._poller.looked(new=not in_vain)
            self.manager.notify_arrival(_REASONS[due])
        return 0.0


_REASONS = dict.fromkeys(Due, NotifyReason.AVAILABLE) | {Due.CHANGE: NotifyReason.ARRIVAL}
_lock = threading.Lock()
_dispatchers: dict[tuple[str, str | None, int, Magazine], QueueDispatcher] = {}


def _forget() -> None:
    """Let a forked process, which has no threads of its parent, start dispatchers of its own."""
    global _lock
    _lock = threading.Lock()
    _dispatchers.clear()


os.register_at_fork(after_in_child=_forget)


def open_dispatcher(
    catalog: Catalog, queue: QueueInfo, magazine: Magazine = Magazine.MAIN
) -> QueueDispatcher:
    """Return the dispatcher of a magazine, which all its consumers in this process share."""
    key = (catalog.url, catalog.store, queue.id, magazine)
    with _lock:
        dispatcher = _dispatchers.get(key)
        if dispatcher is None:
            dispatcher = QueueDispatcher(catalog, queue, magazine)
            dispatcher.loop.start()
            _dispatchers[dispatcher.key] = dispatcher
        dispatcher.users += 1
        return dispatcher


def close_dispatcher(*dispatchers: QueueDispatcher) -> None:
    """Stop the dispatchers whose last user closes them, all of them at once."""
    ending = []
    with _lock:
        for each in dispatchers:
            # Unless this process was forked from the one that has opened it.
            if _dispatchers.get(each.key) is each:
                each.users -= 1
                if not each.users:
                    ending.append(_dispatchers.pop(each.key))
                    each.loop.end()
    end = time.monotonic() + STOP_SECONDS
    for each in ending:
        each.loop.stop(max(end - time.monotonic(), 0.0))


def notify_loaded(catalog: Catalog, queue: QueueInfo) -> None:
    """Notify the queue's consumers in this process of a load, before its thread sees it."""
    with _lock:
        dispatcher = _dispatchers.get((catalog.url, catalog.store, queue.id, Magazine.MAIN))
    if dispatcher is not None:
        dispatcher.manager.notify_arrival()
