"""`looks`: what one thread per store sees of the queues that triggers wait for.

All triggers of a triggerer run in one event loop, which must not wait for a catalog. So one thread
looks at the queues of all triggers of a store, in one transaction, when the catalog has changed or
half a second is over. It ends with its last trigger, and nothing remains, since it takes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from ignis_airflow.look import QueueLook
from queue_core.catalog import queues
from queue_core.catalog.poller import Poller, Watch
from queue_core.catalog.records import figures
from queue_core.catalog.slices import shard_locks
from queue_core.errors import IgnisError, NoSuchStore, Unavailable
from queue_core.store import Store
from queue_core.support.loop import Loop
from queue_core.values.address import Address

_log = logging.getLogger(__name__)
#: Seconds without a change after which the thread looks, since a held message may be due.
_BLIND_SECONDS = 0.5
#: Seconds after which the thread notices that it must end, or look for a new trigger.
_SLICE_SECONDS = 0.2
_RETRY_SECONDS = 1.0


def look(store: Store, names: Collection[str]) -> dict[str, QueueLook]:
    """Look at some queues; those that do not exist are left out."""
    with store.catalog.read() as connection:
        known = queues.named(connection, names)
        found = figures.read(connection, [info.id for info in known.values()]) if known else []
        readers = [info.id for info in known.values() if info.log_of]
        behind, ends = Counter[int](), Counter[int]()
        for key, shard in shard_locks.backlog(connection, readers).items() if readers else ():
            behind[key[0]] += shard.behind
            ends[key[0]] += shard.cursor + shard.behind if shard.log_of else 0
    looks = {}
    for row in found:
        info = known[row.queue]
        closed = info.is_paused or info.deactivated_at is not None
        looks[row.queue] = QueueLook(
            waiting=0 if closed else row.waiting,
            # What a log has for a subscription comes into main when it is fired, if it matches.
            came=row.all_returned + (ends[row.queue_id] or row.all_loaded),
            unfinished=row.waiting + row.in_flight + row.sidelined - row.dead,
            may_fire=partial(_may_fire, store, row.queue),
            behind=behind[row.queue_id],
        )
    return looks


@contextmanager
def looks(
    address: Address, queue: str, wanted: Callable[[QueueLook], bool]
) -> Iterator[asyncio.Queue[QueueLook]]:
    """
    Yield an `asyncio.Queue` of the looks that are *wanted*, for the event loop of the caller.

    *wanted* is called in the thread of the store, and never for two looks at once.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Queue[QueueLook] = asyncio.Queue()

    def report(look: QueueLook) -> None:
        # The triggerer may end before the thread.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(found.put_nowait, look)

    waiter = _Waiter(queue, wanted, report)
    with _lock:
        watcher = _watchers.get(address)
        if watcher is None:
            watcher = _Watcher(address)
            watcher.loop.start()
            # Only now, since `start` fails if no thread can be started.
            _watchers[address] = watcher
        watcher.waiters.add(waiter)
        watcher.look_at_once()
    try:
        yield found
    finally:
        with _lock:
            watcher.waiters.discard(waiter)
            if not watcher.waiters:
                del _watchers[address]
                # The event loop does not wait for the thread.
                watcher.loop.end()


@dataclass(eq=False)
class _Waiter:
    """A trigger that waits for looks at a queue."""

    queue: str
    wanted: Callable[[QueueLook], bool]
    report: Callable[[QueueLook], None]
    #: Whether the log tells that the queue does not exist.
    is_missed: bool = False


class _Watcher:
    """The thread that looks at the queues of a store for its waiters."""

    def __init__(self, address: Address) -> None:
        self.waiters: set[_Waiter] = set()
        self._address = address
        self._store: Store | None = None
        self._poller: Poller | None = None
        self.loop = Loop("airflow", self._work, retry=_RETRY_SECONDS, at_end=self._close)

    def _work(self) -> float:
        if self._store is None:
            self._store = Store(self._address, create=False)
        if self._poller is None:
            watch = Watch(self._store.catalog)
            self._poller = Poller(watch, first=0.02, last=0.2, blind=_BLIND_SECONDS)
        if self._poller.wait(time.monotonic() + _SLICE_SECONDS) is not None:
            self._poller.pause()
            try:
                self._poller.looked(new=self._look(self._store))
            except NoSuchStore:
                # The store was removed. One that is made in its place is another store.
                self._close()
                raise
        return 0.0

    def look_at_once(self) -> None:
        """Look soon, since there is a new waiter."""
        poller = self._poller
        if poller is not None:
            poller.look_in(0)

    def _look(self, store: Store) -> bool:
        waiters = self.waiters.copy()
        found = look(store, {waiter.queue for waiter in waiters})
        is_new = False
        for waiter in waiters:
            seen = found.get(waiter.queue)
            if seen is None:
                if not waiter.is_missed:
                    _log.warning("%r has no queue %r; wait until it has", store, waiter.queue)
                waiter.is_missed = True
            elif waiter.wanted(seen):
                is_new = True
                waiter.report(seen)
        return is_new

    def _close(self) -> None:
        if self._poller is not None:
            self._poller.close()
        if self._store is not None:
            self._store.close()
        self._store = self._poller = None


_lock = threading.Lock()
_watchers: dict[Address, _Watcher] = {}


def _may_fire(store: Store, queue: str) -> bool:
    """Return whether a consumer would get a message, or an error that it should see."""
    try:
        return bool(store.queue(queue).peek(1).num_rows)
    except Unavailable:
        raise
    except IgnisError:
        return True
