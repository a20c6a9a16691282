"""Settle: delete, sideline or reload fired messages.

Changes: the rows leave their slices. Deleted rows are gone. Sidelined rows become a slice at the
tail of the sideline, with one more attempt and the time at which they are due. Reloaded rows wait
again at their old places, or in the sideline if they are to wait for a time. If no handler has seen
them, their delivery does not count, and suspects stay suspects. Guard: only rows that
are still fired change, and only rows that the named holder still holds. So a second settlement
changes nothing, and neither does one of messages that were swept and fired again. Crash before the
commit: nothing was settled.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog import queues as catalog_queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import holders
from queue_core.catalog.holders.consumers import deleting_on_commit
from queue_core.catalog.records import acts, failures, traces
from queue_core.catalog.records.publications import is_new_batch
from queue_core.catalog.slices import id_map, segment_lookup
from queue_core.catalog.slices.changes import CLEARED, Changes
from queue_core.catalog.slices.conditions import fired_of_segments
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption
from queue_core.handling.failure_log import FAILURES
from queue_core.values.due import DueTimes
from queue_core.values.ids import IdSet
from queue_core.values.model import (
    THIS_PROCESS,
    Batch,
    Consumer,
    Holder,
    Magazine,
    QueueInfo,
    Slice,
    Ticket,
    check_roots,
)
from queue_core.values.names import listed
from queue_core.values.outcomes import Settlement, with_each
from queue_core.values.plan import Taken, having, messages_in
from queue_core.values.retry import Retry
from queue_core.values.rows import Numbers

_log = logging.getLogger(__name__)


def settle(
    catalog: Catalog,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    holder: Holder = None,
    batch: Batch | None = None,
    retry: Retry | None = None,
) -> int:
    """
    Settle messages of some queues in one transaction; return how many *holder* still held.

    *retry* replaces the policies of the queues for these messages. With the *batch* of a streaming
    query, a second call changes nothing. Raises `BadOutcome` for an id that the queues have never
    assigned, `StaleCheckpoint`, and `BadOption` for messages of a query with ``ack=onCommit``, and
    for two queues of one root; then nothing is changed.
    """
    lost = settle_or_lose(catalog, queues, settlement, holder, batch, retry)
    return 0 if lost is None else len(_all_of(settlement)) - len(lost)


def settle_or_lose(
    catalog: Catalog,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    holder: Holder = None,
    batch: Batch | None = None,
    retry: Retry | None = None,
) -> Numbers | None:
    """
    Do the same as `settle`; return the ids of the messages that *holder* no longer held.

    Returns None if the *batch* was settled before.
    """

    def work(connection: Connection) -> Numbers | None:
        if batch and not is_new_batch(connection, queues[0], batch):
            return None
        return settle_within(connection, queues, settlement, holder, batch, retry)

    lost = transact(catalog, "settle", work)
    FAILURES.note(listed([queue.name for queue in queues]), settlement, catalog.url)
    # Now, because there may be no further firing or settlement for a long time.
    catalog.timings.flush(catalog.write)
    return lost


def settle_within(
    connection: Connection,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    holder: Holder,
    batch: Batch | None,
    retry: Retry | None,
) -> Numbers:
    """Do the same as `settle_or_lose` in a transaction that has recorded the *batch*."""
    check_roots(queues)
    ids = _all_of(settlement)
    found = segment_lookup.find(connection, queues, ids)
    if found.moved:
        settlement = _located(connection, queues, settlement)
        ids = _all_of(settlement)
        found = segment_lookup.find(connection, queues, ids)
    by_firing = isinstance(holder, Ticket | Consumer)
    segment_lookup.check(connection, queues, ids, found, fired=by_firing)
    changes = Changes(queues)
    failed: dict[int, list[Taken]] = defaultdict(list)
    settled: list[Taken] = []
    fired, given = fired_of_segments([queue.id for queue in queues], ids.segments)
    by_holder = holders.conditions(connection, holder)
    where, of_holder = (*fired, *by_holder.where), given | by_holder.given
    held = fetch(connection, *where, given=of_holder, lock="wait")
    if batch is not None:
        _check_ack(connection, queues, [piece for piece, _ in having(held, ids)])
    times, policies, now = _waiting(connection, queues, settlement, retry)
    for piece in held:
        deleted = piece.rows & settlement.deleted.rows(piece.segment_id)
        sidelined = piece.rows & settlement.sidelined.rows(piece.segment_id)
        reloaded = piece.rows & settlement.reloaded.rows(piece.segment_id)
        settled.append((piece, deleted | sidelined | reloaded))
        changes.remove(piece, deleted, "deleted")
        if sidelined:
            attempts = piece.attempts + 1
            for rows, due_at in times.failed(piece, sidelined, policies[piece.queue_id]):
                values = {"attempts": attempts, "due_at": due_at, **CLEARED}
                changes.move(piece, rows, Magazine.SIDELINE, "sidelined", **values)
            failed[piece.queue_id].append((piece, sidelined))
        if reloaded:
            before = max(piece.deliveries - 1, 0)
            for rows, due_at in times.later(piece, reloaded):
                # Neither a failure nor a delivery, however often it is put off.
                values = {"due_at": due_at, "deliveries": before, **CLEARED}
                changes.move(piece, rows, Magazine.SIDELINE, "sidelined", **values)
                reloaded = reloaded - rows
            unhandled = reloaded & settlement.unhandled.rows(piece.segment_id)
            changes.reload(piece, unhandled, deliveries=before)
            changes.reload(piece, reloaded - unhandled, **(CLEARED if piece.lost_among else {}))
    changes.apply(connection, now)
    messages = messages_in(settled)
    if holder is THIS_PROCESS and messages < len(ids):
        _warn_of_others(connection, queues, fetch(connection, *fired, given=given), ids)
    name = holders.name_of(holder)
    for queue_id, taken in sorted(failed.items()):
        failures.record_each(
            connection, queue_id, name, taken, settlement.reasons, now, compacted=found.compacted
        )
        if settlement.traces.num_rows:
            traces.keep(connection, queue_id, taken, settlement, now)
    # A person may have taken them by hand.
    acts.note(connection, messages)
    if messages == len(ids):
        return np.empty(0, np.int64)
    lost = np.setdiff1d(ids.numbers(), id_map.rows_of(settled))
    return id_map.logical(connection, lost)


def _waiting(
    connection: Connection,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    retry: Retry | None,
) -> tuple[DueTimes, dict[int, Retry | None], int | None]:
    """Return the due times of the messages, the present policy of each queue, and the time."""
    if not (len(settlement.sidelined) or settlement.waits.num_rows):
        return DueTimes.none(), {}, None
    policies = {queue.id: retry for queue in queues}
    if retry is not None:
        now = dialect.read_clock(connection)
    else:
        present, now = catalog_queues.as_they_are(connection, queues)
        policies = {queue.id: queue.settings.retry for queue in present}
    return DueTimes(settlement.waits, settlement.reasons, now), policies, now


def _located(
    connection: Connection, queues: Sequence[QueueInfo], settlement: Settlement
) -> Settlement:
    """Return the settlement of the rows that now hold the messages, after a compaction."""
    queue_ids = [queue.id for queue in queues]
    return with_each(
        settlement,
        lambda ids: id_map.located(connection, queue_ids, ids),
        lambda table: _with_rows(connection, queue_ids, table),
    )


def _all_of(settlement: Settlement) -> IdSet:
    return settlement.deleted | settlement.sidelined | settlement.reloaded


def _with_rows(connection: Connection, queue_ids: Sequence[int], table: pa.Table) -> pa.Table:
    """Return a table of messages with the ids of the rows that hold them now."""
    if not table.num_rows:
        return table
    numbers = id_map.physical(connection, queue_ids, table.column("message_id").to_numpy())
    return table.set_column(0, "message_id", pa.array(numbers))


def _warn_of_others(
    connection: Connection,
    queues: Sequence[QueueInfo],
    fired: Sequence[Slice],
    ids: IdSet,
) -> None:
    """Warn of messages that were not settled because other consumers hold them."""
    left = holders.of_others(connection, fired, ids)
    if left:
        _log.warning(
            "queue %s: %d of the messages were not settled, since other consumers hold them, %s; "
            "settle them with their firing, or name their consumer=",
            ", ".join(repr(queue.name) for queue in queues),
            sum(left.values()),
            ", ".join(sorted(map(repr, left))),
        )


def _check_ack(connection: Connection, queues: Sequence[QueueInfo], held: list[Slice]) -> None:
    """Refuse messages of a query that deletes them when it commits their batch."""
    holding = {piece.consumer_id for piece in held if piece.consumer_id is not None}
    if not holding:
        return
    name = deleting_on_commit(connection, sorted(holding))
    if name is not None:
        names = ", ".join(repr(queue.name) for queue in queues)
        raise BadOption(
            f"mode=settle: the messages of queue {names} are held by the query {name!r}, whose "
            "source has ack=onCommit and deletes every message when its batch is committed; set "
            "ack=settle in the source, and restart the query"
        )
