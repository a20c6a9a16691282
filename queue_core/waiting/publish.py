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
from collections.abc import Callable, Collection, Iterable, Sequence
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
from queue_core.verbs.quarantine import quarantining
from queue_core.waiting.admission import Admission
from queue_core.waiting.bounded_load import Loading, commit_load, load_all
from queue_core.waiting.rendezvous import meet, meet_once
from queue_core.waiting.smart.load import Decided, SmartLoad

_AS_SET = OnFull()


def check_several(queues: Iterable[QueueInfo]) -> None:
    """Raise `BadOption` for a rendezvous among queues that are loaded together."""
    for queue in queues:
        check_keeps(queue, "a load into several queues cannot do", "load into it alone")


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
    """
    One load into a queue or several, until it is done.

    Bounded queues admit it as *when_full* says. A load into a rendezvous waits until the messages
    are fired (`meet`, `meet_once`), and must be into this queue alone; see `check_several`.
    """

    catalog: Catalog
    storage: Storage
    loads: Sequence[Routed]
    when_full: OnFull = _AS_SET
    #: The batch of a query, which is loaded unless it was loaded before. Then it needs no capacity,
    #: and its staged files become garbage.
    batch: Batch | None = None
    _: KW_ONLY
    #: Whether each queue knows the batch by itself, and may get it although others have it.
    by_queue: bool = False
    #: Does something else in the transaction of a load into one queue, before the load, which then
    #: waits for locks as usual; it may raise `Undone`.
    first: Callable[[Connection], object] | None = None
    #: Puts others into the lists of segments if a file was cleaned up while the load waited.
    again: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        self.loads = sorted(self.loads, key=lambda each: each.queue.id)

    def run(self) -> dict[str, list[int]] | None:
        """
        Load; return the id of the first message of each segment, by queue.

        Returns None if the batch was loaded before. Raises `QueueDeactivated`, `QueueFull`, and
        without *again* `PublicationRefused` for a file that was cleaned up; then nothing is loaded.
        With a batch, raises also `StaleCheckpoint`, and `BadOption` if the query loaded it into
        another queue; with a policy or de-duplication, also `DamagedSegment`, after a quarantine.
        """
        with quarantining(self.catalog, self.storage):
            if any(each.queue.settings.is_rendezvous for each in self.loads):
                return self._meet()
            return self._load()

    def _load(self) -> dict[str, list[int]] | None:
        """Load, and remove the files that are left over by then."""
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

    def _meet(self) -> dict[str, list[int]] | None:
        """Load into a rendezvous, and wait until it is met; without the ids of a batch."""
        ((queue, staged, _),) = self.loads
        assert self.first is None, "the messages would not be there before the commit"
        given, timeout = (self.catalog, self.storage, queue, staged), self.when_full.timeout
        if self.batch is None:
            return {queue.name: meet(*given, timeout, self.again)}
        return {queue.name: []} if meet_once(*given, self.batch, timeout) else None

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
