"""Settle: delete, sideline or reload what is fired.

Changes: the rows leave their slices. Deleted ones are gone; sidelined ones are a slice at the tail
of the sideline with one attempt more; reloaded ones wait again at their old place. Guard: only rows
that are still fired (and held by the consumer, where one is given) are touched, so that settling
twice, or what was swept meanwhile, changes nothing. Crash before the commit: nothing was settled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, select

from queue_core import faults
from queue_core.catalog import dialect, failures, id_map
from queue_core.catalog.database import Catalog
from queue_core.catalog.publications import is_new_batch
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import segments, slices
from queue_core.errors import BadOutcome
from queue_core.ids import IdSet, first_id
from queue_core.model import Consumer, Magazine, QueueInfo, Slice, State
from queue_core.outcomes import Settlement
from queue_core.rows import EMPTY, Rows


def settle(
    catalog: Catalog,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    consumer: Consumer | None = None,
    batch: tuple[str, int] | None = None,
) -> int:
    """
    Settle messages of some queues in one transaction; return how many were still held.

    With *batch*, the id of a streaming query and of its batch, a second time changes nothing.
    Raises `BadOutcome`, and then changes nothing, for an id that no message of the queues has had.
    """

    def work(connection: Connection) -> int:
        if batch and not is_new_batch(connection, queues[0].id, *batch):
            return 0
        settled = _settle(connection, queues, settlement, consumer)
        faults.point("settle.before_commit")
        return settled

    settled = catalog.write(work)
    faults.point("settle.committed")
    return settled


def _settle(
    connection: Connection,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    consumer: Consumer | None,
) -> int:
    settlement = _located(connection, queues, settlement)
    every = settlement.deleted | settlement.sidelined | settlement.reloaded
    _check_ours(connection, queues, every)
    changes = Changes(queues)
    moved: dict[int, list[tuple[Slice, Rows]]] = defaultdict(list)
    settled = 0
    for piece in _held(connection, queues, every, consumer):
        deleted = piece.rows & settlement.deleted.rows(piece.segment_id)
        sidelined = piece.rows & settlement.sidelined.rows(piece.segment_id)
        reloaded = piece.rows & settlement.reloaded.rows(piece.segment_id)
        touched = deleted | sidelined | reloaded
        if not touched:
            continue
        settled += len(touched)
        if reloaded:
            changes.release(piece, reloaded)
        rest = piece.rows - touched
        if len(reloaded) < len(piece.rows):
            changes.keep(piece, rest if rest else EMPTY)
        changes.move(piece, sidelined, Magazine.SIDELINE, attempts=piece.attempts + 1)
        changes.count(piece, deleted=len(deleted), sidelined=len(sidelined), reloaded=len(reloaded))
        if sidelined:
            moved[piece.queue_id].append((piece, sidelined))
    changes.apply(connection)
    name = consumer.name if consumer else None
    for queue_id, those in moved.items():
        told = failures.of_each(those, settlement.reasons)
        failures.record(connection, queue_id, name, told)
    return settled


def _located(
    connection: Connection, queues: Sequence[QueueInfo], settlement: Settlement
) -> Settlement:
    """The settlement of the rows that the messages are now, wherever compaction has put them."""
    ours = [queue.id for queue in queues]
    told = settlement.reasons
    numbers = id_map.physical(connection, ours, told.column("message_id").to_numpy())
    return Settlement(
        deleted=id_map.located(connection, ours, settlement.deleted),
        sidelined=id_map.located(connection, ours, settlement.sidelined),
        reloaded=id_map.located(connection, ours, settlement.reloaded),
        reasons=told.set_column(0, "message_id", pa.array(numbers)),
    )


def _held(
    connection: Connection,
    queues: Sequence[QueueInfo],
    ids: IdSet,
    consumer: Consumer | None,
) -> list[Slice]:
    conditions: list[ColumnElement[bool]] = [
        dialect.one_of(connection, slices.c.segment_id, ids.segments),
        dialect.one_of(connection, slices.c.queue_id, [queue.id for queue in queues]),
        slices.c.state == int(State.FIRED),
    ]
    if consumer is not None:
        conditions.append(slices.c.consumer_id == consumer.id)
    return fetch(connection, *conditions, lock="wait")


def _check_ours(connection: Connection, queues: Sequence[QueueInfo], ids: IdSet) -> None:
    """Refuse ids that no message of these queues can have had."""
    ours = {queue.id for queue in queues}
    names = ", ".join(repr(queue.name) for queue in queues)
    newest = dialect.last_id(connection, segments)
    known = {
        row.id: row
        for row in connection.execute(
            select(segments.c.id, segments.c.queue_id, segments.c.rows).where(
                dialect.one_of(connection, segments.c.id, ids.segments)
            )
        )
    }
    for segment in ids.segments:
        rows = ids.rows(segment)
        there = known.get(segment)
        if segment < 1 or segment > newest or (there is not None and there.queue_id not in ours):
            strange = rows.start
        elif there is not None and rows.stop > there.rows:
            strange = rows.stop - 1
        else:
            continue
        raise BadOutcome(
            f"message {first_id(segment) + strange} is not of queue {names}; "
            "take the ids from its _message_id column"
        )
