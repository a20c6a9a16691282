"""Publish: load into one queue or several in one transaction, and wait while a queue is full.

All of the queues get their messages, or none does.

Changes: those of a load for each queue. Guard: as for each load. Queues with a policy or with
de-duplication come first. One that is loaded alone decides before the transaction; of several, each
decides with its shards locked, as in a transaction of a caller. The others follow in the order of
their ids, so that no two such loads wait for each other. A load waits in the line of one full queue
at a time, and holds no room in the others meanwhile. Crash: as of a load, for all queues together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import named_locks, waiters
from queue_core.catalog.queues import SettingsChanged
from queue_core.catalog.records.publications import is_new_load
from queue_core.catalog.slices import segments
from queue_core.errors import IgnisError
from queue_core.segments.stager import remove_refused
from queue_core.segments.storage import Storage
from queue_core.values.model import Batch, Place, QueueInfo, Staged
from queue_core.verbs.capacity.bounds import CapacityExceeded, OnFull, check_keeps
from queue_core.waiting.admission import Admission
from queue_core.waiting.bounded_load import Loading, commit_load, load_all
from queue_core.waiting.rendezvous import meet, meet_once
from queue_core.waiting.smart.load import Decided, SmartLoad

_AS_SET = OnFull()


def publish(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    when_full: OnFull = _AS_SET,
    first: Callable[[Connection], object] | None = None,
    again: Callable[[], object] | None = None,
    smart: SmartLoad | None = None,
) -> list[int]:
    """
    Load staged segments, each run of which has a shard, or what *smart* decides.

    A bounded queue admits them as *when_full* says. *first* does something else in the same
    transaction, before the load, which then waits for locks as usual; it may raise `Undone`.
    *again* puts others into the list *staged* if a file was cleaned up while the load waited.
    Returns the id of the first message of each segment. Raises `QueueDeactivated`, `QueueFull`, and
    without *again* `PublicationRefused` for such a file; then nothing is loaded. *smart* raises
    also `DamagedSegment`.
    """
    if queue.settings.is_rendezvous:
        assert first is None, "the messages would not be there before the commit"
        return meet(catalog, storage, queue, staged, when_full.timeout, again)
    loads = [Routed(queue, staged, smart)]
    load = RoutedLoad(catalog, storage, loads, when_full, first=first, again=again)
    first_ids = load.run()
    assert first_ids is not None, "only a batch can have been loaded before"
    return first_ids[queue.name]


def publish_once(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    batch: Batch,
    when_full: OnFull = _AS_SET,
    smart: SmartLoad | None = None,
) -> bool:
    """
    Load the batch of a streaming query, unless it was loaded before; return whether it is loaded.

    A batch that was loaded before needs no capacity, and its staged files become garbage. In a
    rendezvous, both wait until no message waits to be fired (`meet_once`). Raises as `publish`
    does, `StaleCheckpoint`, and `BadOption` if the query loaded it into another queue.
    """
    if queue.settings.is_rendezvous:
        return meet_once(catalog, storage, queue, staged, batch, when_full.timeout)
    loads = [Routed(queue, staged, smart)]
    load = RoutedLoad(catalog, storage, loads, when_full, batch, by_queue=True)
    return load.run() is not None


class Undone(Exception):
    """Raised by what comes *first* in the transaction of a load, which then changes nothing."""


class Routed(NamedTuple):
    """What one queue gets."""

    queue: QueueInfo
    #: The segments that exist before the transaction.
    staged: Sequence[Staged]
    #: The load that decides about its rows; None: the queue has neither policy nor dedup.
    smart: SmartLoad | None = None

    def decided(self) -> Sequence[Staged]:
        """Return the segments to be loaded, as it was decided last."""
        return self.staged if self.smart is None else self.smart.prepared.staged


@dataclass(slots=True)
class RoutedLoad:
    """One load into a queue or several, until it is done."""

    catalog: Catalog
    storage: Storage
    loads: Sequence[Routed]
    when_full: OnFull
    batch: Batch | None = None
    _: KW_ONLY
    #: Whether each queue knows the batch by itself, and may get it although others have it.
    by_queue: bool = False
    #: As in `publish`, for one queue alone.
    first: Callable[[Connection], object] | None = None
    #: As in `publish`, for the segments of all queues.
    again: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        self.loads = sorted(self.loads, key=lambda each: each.queue.id)

    def run(self) -> dict[str, list[int]] | None:
        """
        Load; return the id of the first message of each segment, by queue.

        Returns None if the batch was loaded before. Raises as `publish` and `publish_once` do.
        """
        for each in self.loads:
            check_keeps(each.queue, "a load into several queues cannot do", "load into it alone")
        try:
            first_ids = self._repeat()
        except IgnisError as error:
            for each in self.loads:
                if each.smart is None:
                    remove_refused(self.storage, each.staged, error)
                else:
                    each.smart.refuse(error)
            raise
        except (SettingsChanged, Undone):
            self._discard_decisions()
            raise
        self._discard_decisions(first_ids or ())
        return first_ids

    def _discard_decisions(self, loaded: Collection[str] = ()) -> None:
        """Remove what was decided for queues that are not *loaded*."""
        for each in self.loads:
            if each.smart is not None and each.queue.name not in loaded:
                each.smart.discard()

    def _repeat(self) -> dict[str, list[int]] | None:
        """Load at once, or from the line of a queue that is full, and then of another one."""
        timeout = self.when_full.timeout
        end = None if timeout is None else time.monotonic() + timeout
        full = self.loads[0] if len(self.loads) == 1 else None
        while True:
            left = None if end is None else max(end - time.monotonic(), 0.0)
            try:
                if full is None:
                    return self._commit(None, None, left)
                admission = Admission(
                    self.catalog,
                    self.storage,
                    full.queue,
                    full.decided,
                    replace(self.when_full, timeout=left),
                )
                return admission.run(partial(self._commit, full, timeout=left))
            except CapacityExceeded as error:
                full = next(each for each in self.loads if each.queue.id == error.queue_id)

    def _commit(
        self, full: Routed | None, waiter: int | None, timeout: float | None
    ) -> dict[str, list[int]] | None:
        """Attempt the load; *waiter* is its number in the line of the queue that was full."""

        def commit(decided: Decided | None = None) -> dict[str, list[int]] | None:
            work = partial(self._work, full=full, waiter=waiter, decided=decided)
            seconds = timeout if self.first is None else None
            # A decision whose files are gone is made again, by `repeat`.
            again = self.again if decided is None else None
            return commit_load(self.catalog, work, seconds, again)

        alone = self.loads[0].smart if len(self.loads) == 1 else None
        return commit() if alone is None else alone.repeat(commit)

    def _work(
        self,
        connection: Connection,
        full: Routed | None,
        waiter: int | None,
        decided: Decided | None,
    ) -> dict[str, list[int]] | None:
        if self.first is not None or any(each.smart is not None for each in self.loads):
            # These locks come before those of any message.
            for each in self.loads:
                if each.queue.settings.is_bounded:
                    named_locks.lock_room(connection, each.queue.id)
        loads = self._new_ones(connection)
        others = [each for each in self.loads if each not in loads]
        unused = chain.from_iterable(each.staged for each in others)
        segments.discard_unpublished(connection, unused)
        if waiter is not None and full not in loads:
            waiters.leave(connection, waiter)
        if not loads:
            return None
        if self.first is not None:
            self.first(connection)
        overflow = self.when_full.overflow
        first_ids = {}
        for each in loads:
            if each.smart is not None:
                load: Decided = each.smart.load_within if decided is None else decided
                own = waiter if each is full else None
                first_ids[each.queue.name] = load(connection, own, overflow)
        plain = [each for each in loads if each.smart is None]
        loaded = load_all(
            connection,
            self.storage,
            [Loading(each.queue, each.staged, waiter if each is full else None) for each in plain],
            overflow,
        )
        names = [each.queue.name for each in plain]
        return first_ids | dict(zip(names, loaded, strict=True))

    def _new_ones(self, connection: Connection) -> Sequence[Routed]:
        """Return the loads of the queues that do not have the batch."""
        batch = self.batch
        if batch is None:
            return self.loads
        if self.by_queue:
            return [each for each in self.loads if is_new_load(connection, each.queue, batch)]
        names = ", ".join(each.queue.name for each in self.loads)
        is_new = is_new_load(connection, Place(named_locks.STORE, names), batch)
        return self.loads if is_new else []
