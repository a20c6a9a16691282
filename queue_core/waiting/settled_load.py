"""Settle and load: settle messages, and load the rows that their handler gave, in one transaction.

Changes: those of a settlement and of a load. Guard: the rows of a message are loaded only if its
holder still holds it, and a batch of a query that was settled before loads nothing. Crash: nothing
was settled and nothing loaded, or both; vacuum removes the files of a load that was not committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.records.publications import is_new_batch
from queue_core.catalog.slices import shard_locks
from queue_core.handling.failure_log import FAILURES
from queue_core.segments.storage import Storage
from queue_core.values.ids import IdSet
from queue_core.values.model import Batch, Holder, QueueInfo, Staged, StagedOutput
from queue_core.values.names import listed
from queue_core.values.outcomes import Settlement, with_each
from queue_core.values.retry import Retry
from queue_core.values.rows import Numbers, Rows
from queue_core.verbs.capacity.bounds import OnFull, check_keeps
from queue_core.verbs.settle import settle_or_lose, settle_within
from queue_core.waiting.publish import Routed, RoutedLoad, Undone
from queue_core.waiting.smart.load import of_staged

#: The message of a row that is not loaded.
_LEFT_OUT = -1
#: Why no handler's rows go into a rendezvous.
BEFORE_SETTLEMENT = "cannot happen before the settlement of the messages that give the rows"


def settle_and_load(
    catalog: Catalog,
    storage: Storage,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    holder: Holder,
    retry: Retry | None,
    output: QueueInfo,
    rows: StagedOutput,
    when_full: OnFull,
    batch: Batch | None = None,
) -> Numbers | None:
    """
    Settle messages of *queues*, and load their *rows* into *output*.

    Rows of messages that *holder* does not hold any more are left out. Returns the ids of these
    messages; None if the *batch* was settled before. Raises as `settle_or_lose` and `RoutedLoad`
    do, and `SettingsChanged`, after which the caller calls again with the queue as it is then.
    """
    check_keeps(output, BEFORE_SETTLEMENT)
    when_full = replace(when_full, overtakes=output.id in [queue.id for queue in queues])
    lost = gone = np.empty(0, np.int64)

    def first(connection: Connection) -> None:
        nonlocal lost
        if batch is not None and not is_new_batch(connection, queues[0], batch):
            raise _SettledBefore
        if output.id <= min(queue.id for queue in queues):
            # Otherwise, two transactions between the same queues could wait for each other.
            shard_locks.load_pointers(connection, output.id, lock=True)
        lost = settle_within(connection, queues, settlement, holder, batch, retry)
        if np.isin(rows.ids, lost).any():
            raise _RowsOfLost

    while rows.staged:
        try:
            smart = of_staged(catalog, storage, output, rows.staged)
            loads = [Routed(output, rows.staged, smart)]
            RoutedLoad(catalog, storage, loads, when_full, first=first).run()
        except _SettledBefore:
            return None
        except _RowsOfLost:
            # Without them: another consumer may have them, and load their rows.
            gone = np.union1d(gone, lost)
            settlement, rows = _settling_others(settlement, lost), _without(rows, lost)
        else:
            FAILURES.note(listed([queue.name for queue in queues]), settlement, catalog.url)
            return np.union1d(gone, lost)
    left = settle_or_lose(catalog, queues, settlement, holder, batch, retry)
    return None if left is None else np.union1d(gone, left)


class _RowsOfLost(Undone):
    """Rows would be loaded that belong to messages which the holder does not hold any more."""


class _SettledBefore(Undone):
    """The batch of a query was settled before, and its rows were loaded."""


def _settling_others(settlement: Settlement, lost: Numbers) -> Settlement:
    ids = IdSet.of(lost)
    return with_each(settlement, lambda given: given - ids)


def _without(rows: StagedOutput, lost: Numbers) -> StagedOutput:
    """Leave out the rows of lost messages."""
    left: list[Staged] = []
    ids, first = [np.empty(0, np.int64)], 0
    for segment in rows.staged:
        of_rows = rows.ids[first : first + segment.rows]
        first += segment.rows
        kept = (of_rows != _LEFT_OUT) & ~np.isin(of_rows, lost)
        if kept.any():
            left.append(segment.narrowed(Rows.of_numbers(np.flatnonzero(kept))))
            ids.append(np.where(kept, of_rows, _LEFT_OUT))
    return StagedOutput(tuple(left), np.concatenate(ids))
