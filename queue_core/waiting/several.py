"""Load into several queues in one transaction: all of them get their messages, or none does.

Changes: those of a load for each queue. Guard: as for each load. Queues with a policy or with
de-duplication come first, and decide with their shards locked, as in a transaction of a caller. The
others follow in the order of their ids, so that no two such loads wait for each other. A load waits
in the line of one full queue at a time, and holds no room in the others meanwhile. Crash: as of a
load, for all queues together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import named_locks, waiters
from queue_core.catalog.records.publications import is_new_load
from queue_core.catalog.slices import segments
from queue_core.errors import IgnisError
from queue_core.segments.stager import remove_refused
from queue_core.segments.storage import Storage
from queue_core.values.model import Batch, Place, QueueInfo, Staged
from queue_core.verbs.capacity.bounds import CapacityExceeded, OnFull, check_keeps
from queue_core.waiting.admission import Admission
from queue_core.waiting.bounded_load import Loading, commit_load, load_all
from queue_core.waiting.smart.load import SmartLoad


class Routed(NamedTuple):
    """What one of several queues gets."""

    queue: QueueInfo
    staged: Sequence[Staged]
    #: The load that decides about its rows; None: the queue has neither policy nor dedup.
    smart: SmartLoad | None = None

    @property
    def files(self) -> Sequence[Staged]:
        """The segments that exist before the transaction."""
        return self.staged if self.smart is None else self.smart.incoming.brought


@dataclass(slots=True)
class LoadIntoSeveral:
    """One load into several queues, until it is done."""

    catalog: Catalog
    storage: Storage
    loads: Sequence[Routed]
    when_full: OnFull
    batch: Batch | None = None
    #: Whether each queue knows the batch by itself, and may get it although others have it.
    by_queue: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.loads = sorted(self.loads, key=lambda each: each.queue.id)

    def run(self) -> dict[str, list[int]] | None:
        """
        Load; return the id of the first message of each segment, by queue.

        Returns None if the batch was loaded before. Raises as `publish` and `publish_once` do.
        """
        for each in self.loads:
            check_keeps(each.queue, "a load into several queues cannot do", "load into it alone")
        timeout = self.when_full.timeout
        end = None if timeout is None else time.monotonic() + timeout
        try:
            full: int | None = None
            while True:
                try:
                    return self._attempt(full, end)
                except CapacityExceeded as error:
                    full = error.queue_id
        except IgnisError as error:
            for each in self.loads:
                remove_refused(self.storage, each.files, error)
                if each.smart is not None:
                    each.smart.refuse(error)
            raise

    def _attempt(self, full: int | None, end: float | None) -> dict[str, list[int]] | None:
        """Load, or wait in the line of a queue that was full; raises `CapacityExceeded`."""
        left = None if end is None else max(end - time.monotonic(), 0.0)
        if full is None:
            return self._commit(None, None, left)
        one = next(each for each in self.loads if each.queue.id == full)
        on_full = OnFull(overflow=self.when_full.overflow, timeout=left)
        # What did not fit, as it was decided last.
        staged = one.staged if one.smart is None else one.smart.prepared.staged
        admission = Admission(self.catalog, self.storage, one.queue, staged, on_full)
        return admission.run(lambda waiter: self._commit(full, waiter, left))

    def _commit(
        self, full: int | None, waiter: int | None, timeout: float | None
    ) -> dict[str, list[int]] | None:
        def work(connection: Connection) -> dict[str, list[int]] | None:
            loads = self._new_ones(connection)
            others = [each for each in self.loads if each not in loads]
            unused = chain.from_iterable(each.files for each in others)
            segments.discard_unpublished(connection, unused)
            if waiter is not None and full not in [each.queue.id for each in loads]:
                waiters.leave(connection, waiter)
            if not loads:
                return None
            first_ids = {}
            for each in loads:
                if each.smart is not None:
                    own = waiter if each.queue.id == full else None
                    first_ids[each.queue.name] = each.smart.load_within(
                        connection, own, self.when_full.overflow
                    )
            plain = [each for each in loads if each.smart is None]
            loaded = load_all(
                connection,
                self.storage,
                [
                    Loading(each.queue, each.staged, waiter if each.queue.id == full else None)
                    for each in plain
                ],
                self.when_full.overflow,
            )
            names = [each.queue.name for each in plain]
            return first_ids | dict(zip(names, loaded, strict=True))

        return commit_load(self.catalog, work, timeout)

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
