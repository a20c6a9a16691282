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
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from sqlalchemy import ColumnElement, Connection, Select, select

from queue_core.catalog import dialect, failures, holders, id_map
from queue_core.catalog import queues as catalog_queues
from queue_core.catalog.changes import CLEARED, Changes
from queue_core.catalog.consumers import DELETES_ON_COMMIT
from queue_core.catalog.database import Catalog
from queue_core.catalog.publications import is_new_batch
from queue_core.catalog.slices import fetch
from queue_core.catalog.tables import consumers, segments, slices
from queue_core.catalog.transact import transact
from queue_core.due import DueTimes
from queue_core.errors import BadOption, BadOutcome
from queue_core.ids import IdSet, first_id
from queue_core.model import (
    THIS_PROCESS,
    Batch,
    Holder,
    Magazine,
    QueueInfo,
    Slice,
)
from queue_core.outcomes import Settlement
from queue_core.plan import Taken
from queue_core.retry import Retry
from queue_core.rows import Numbers

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
    assigned, `StaleCheckpoint`, and `BadOption` for messages of a query with ``ack=onCommit``; then
    nothing is changed.
    """

    def work(connection: Connection) -> int:
        if batch and not is_new_batch(connection, queues[0], batch):
            return 0
        streaming = batch is not None
        return _settle(connection, queues, settlement, holder, retry, streaming=streaming).messages

    return transact(catalog, "settle", work)


def settle_or_lose(
    catalog: Catalog,
    queue: QueueInfo,
    settlement: Settlement,
    holder: Holder,
    retry: Retry | None = None,
) -> Numbers:
    """Settle messages of a queue; return the ids of those that *holder* held no longer."""

    def work(connection: Connection) -> Numbers:
        done = _settle(connection, [queue], settlement, holder, retry, streaming=False)
        if done.messages == len(done.given):
            return np.empty(0, np.int64)
        lost = np.setdiff1d(done.given.numbers(), done.settled.numbers())
        return id_map.logical(connection, lost)

    return transact(catalog, "settle", work)


class _Settled(NamedTuple):
    """The rows of a settlement, and those of them that were held until then."""

    given: IdSet
    held: Sequence[Taken]

    @property
    def messages(self) -> int:
        """How many of them were held."""
        return sum(len(rows) for _, rows in self.held)

    @property
    def settled(self) -> IdSet:
        """Those that were held."""
        blocks: dict[int, BitMap] = {}
        for piece, rows in self.held:
            blocks[piece.segment_id] = blocks.get(piece.segment_id, BitMap()) | rows.as_bitmap()
        return IdSet(blocks)


def _settle(
    connection: Connection,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    holder: Holder,
    retry: Retry | None,
    *,
    streaming: bool,
) -> _Settled:
    settlement = _located(connection, queues, settlement)
    ids = settlement.deleted | settlement.sidelined | settlement.reloaded
    check_ids(connection, queues, ids)
    changes = Changes(queues)
    failed: dict[int, list[Taken]] = defaultdict(list)
    settled: list[Taken] = []
    fired = _fired(connection, queues, ids)
    held = fetch(connection, *fired, *holders.conditions(connection, holder), lock="wait")
    if streaming:
        _check_ack(
            connection, queues, [piece for piece in held if piece.rows & ids.rows(piece.segment_id)]
        )
    times, policies = _waiting(connection, queues, settlement, retry)
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
        for rows, due_at in times.later(piece, reloaded) if reloaded else ():
            # Neither a failure nor a delivery, however often it is put off.
            values = {"due_at": due_at, "deliveries": piece.deliveries - 1, **CLEARED}
            changes.move(piece, rows, Magazine.SIDELINE, "sidelined", **values)
            reloaded = reloaded - rows
        unhandled = reloaded & settlement.unhandled.rows(piece.segment_id)
        changes.release(piece, unhandled, deliveries=max(piece.deliveries - 1, 0))
        changes.count(piece, reloaded=len(unhandled))
        reloaded = reloaded - unhandled
        if reloaded:
            changes.release(piece, reloaded, **(CLEARED if piece.lost_among else {}))
            changes.count(piece, reloaded=len(reloaded))
    changes.apply(connection)
    done = _Settled(ids, settled)
    if holder is THIS_PROCESS and done.messages < len(ids):
        _warn_of_others(connection, queues, fired, ids)
    name = holders.name_of(holder)
    for queue_id, taken in failed.items():
        reasons = failures.of_each(taken, settlement.reasons)
        failures.record(connection, queue_id, name, reasons)
    return done


def _waiting(
    connection: Connection,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    retry: Retry | None,
) -> tuple[DueTimes, dict[int, Retry | None]]:
    """Return the due times of the messages, and the present policy of each queue."""
    if not (len(settlement.sidelined) or settlement.waits.num_rows):
        return DueTimes.none(), {}
    policies = {queue.id: retry for queue in queues}
    if retry is None:
        for queue in queues:
            present = catalog_queues.as_it_is(connection, queue)
            policies[queue.id] = present.settings.retry
    now = dialect.read_clock(connection)
    return DueTimes(settlement.waits, settlement.reasons, now), policies


def _located(
    connection: Connection, queues: Sequence[QueueInfo], settlement: Settlement
) -> Settlement:
    """Return the settlement of the rows that now hold the messages, after any compaction."""
    queue_ids = [queue.id for queue in queues]
    return Settlement(
        deleted=id_map.located(connection, queue_ids, settlement.deleted),
        sidelined=id_map.located(connection, queue_ids, settlement.sidelined),
        reloaded=id_map.located(connection, queue_ids, settlement.reloaded),
        unhandled=id_map.located(connection, queue_ids, settlement.unhandled),
        reasons=_with_rows(connection, queue_ids, settlement.reasons),
        waits=_with_rows(connection, queue_ids, settlement.waits),
    )


def _with_rows(connection: Connection, queue_ids: Sequence[int], table: pa.Table) -> pa.Table:
    """Return a table of messages with the ids of the rows that hold them now."""
    if not table.num_rows:
        return table
    numbers = id_map.physical(connection, queue_ids, table.column("message_id").to_numpy())
    return table.set_column(0, "message_id", pa.array(numbers))


def _fired(
    connection: Connection, queues: Sequence[QueueInfo], ids: IdSet
) -> list[ColumnElement[bool]]:
    """Return the conditions of fired slices that may hold some of the messages."""
    return [
        dialect.of(connection).one_of(slices.c.segment_id, ids.segments),
        dialect.of(connection).one_of(slices.c.queue_id, [queue.id for queue in queues]),
        # Their consumer may have read messages that were quarantined later.
        slices.c.ticket.is_not(None),
    ]


def _warn_of_others(
    connection: Connection,
    queues: Sequence[QueueInfo],
    fired: Sequence[ColumnElement[bool]],
    ids: IdSet,
) -> None:
    """Say which other consumers hold messages that were therefore not settled."""
    left = holders.of_others(connection, fetch(connection, *fired), ids)
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
    name = connection.scalar(
        select(consumers.c.name)
        .where(
            dialect.of(connection).one_of(consumers.c.id, sorted(holding)),
            consumers.c.ack == DELETES_ON_COMMIT,
        )
        .limit(1)
    )
    if name is not None:
        names = ", ".join(repr(queue.name) for queue in queues)
        raise BadOption(
            f"mode=settle: the messages of queue {names} are held by the query {name!r}, whose "
            "source has ack=onCommit and deletes every message when its batch is committed; set "
            "ack=settle in the source, and restart the query"
        )


def check_ids(connection: Connection, queues: Sequence[QueueInfo], ids: IdSet) -> None:
    """Refuse ids that no message of these queues can have."""
    queue_ids = {queue.id for queue in queues}
    names = ", ".join(repr(queue.name) for queue in queues)
    database = dialect.of(connection)
    newest = database.last_id(connection, segments)
    given = {"these": database.listed(ids.segments)}
    known = {row.id: row for row in connection.execute(_owners(database), given)}
    for segment in ids.segments:
        rows = ids.rows(segment)
        row = known.get(segment)
        if segment < 1 or segment > newest or (row is not None and row.queue_id not in queue_ids):
            strange = rows.start
        elif row is not None and rows.stop > row.rows:
            strange = rows.stop - 1
        else:
            continue
        raise BadOutcome(
            f"message {first_id(segment) + strange} is not of queue {names}; "
            "take the ids from its _message_id column"
        )


# Built once: to build a statement takes several times as long as SQLite needs to run it.
@lru_cache(maxsize=2)
def _owners(database: dialect.Dialect) -> Select[tuple[int, int, int]]:
    return select(segments.c.id, segments.c.queue_id, segments.c.rows).where(
        database.one_of_given(segments.c.id, "these")
    )
