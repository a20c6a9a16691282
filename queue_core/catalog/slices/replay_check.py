"""
Replay check: refuse to plan a batch without some of its messages, or of their columns.

The options of a query can change while its last batch is not committed. A plan without the messages
of a former queue would let Spark commit the batch, and the source delete messages that nobody saw.
The same holds for the values of columns that a queue got after the query began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, func, select

from queue_core.catalog import dialect
from queue_core.catalog import queues as catalog_queues
from queue_core.catalog.damage import decoding
from queue_core.catalog.slices.conditions import of_tickets
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import queues, segments, slices
from queue_core.errors import BadOption
from queue_core.values.model import Magazine, QueueInfo, State, TicketRange
from queue_core.values.schema import check_known


def check_held(
    connection: Connection,
    infos: Sequence[QueueInfo],
    tickets: TicketRange,
    *,
    all_columns: bool = False,
) -> bool:
    """
    Raise `BadOption` if tickets hold messages of other queues; return whether they hold damage.

    With *all_columns*, raise `SchemaMismatch` as `check_columns` does.
    """
    found = connection.execute(
        select(slices.c.queue_id, slices.c.state, func.max(segments.c.schema_version))
        .outerjoin(segments, segments.c.id == slices.c.segment_id)
        .where(*of_tickets(tickets))
        .group_by(slices.c.queue_id, slices.c.state)
    ).all()
    missing = sorted({row.queue_id for row in found} - {info.id for info in infos})
    if missing:
        _refuse(connection, tickets, missing, "which the query no longer reads")
    if all_columns:
        check_columns(connection, infos, ((queue, version) for queue, _, version in found))
    return any(row.state == int(State.DAMAGED) for row in found)


def check_columns(
    connection: Connection, infos: Sequence[QueueInfo], written: Iterable[tuple[int, int]]
) -> None:
    """
    Raise `SchemaMismatch` if messages can have values in columns that *infos* lack.

    *written* are queues, by number, and versions of the schema with which messages were written.
    """
    of = {info.id: info for info in infos}
    for queue_id, version in written:
        with decoding(segments, f"queue_id {queue_id}"):
            newer = queue_id in of and (version or 0) > of[queue_id].schema_version
        if newer:
            now = catalog_queues.present(connection, of[queue_id])
            check_known(now.name, now.schema.names, of[queue_id].schema.names)


def check_browsed(
    connection: Connection,
    infos: Sequence[QueueInfo],
    magazine: Magazine,
    shards: Iterable[ShardKey],
    tickets: TicketRange,
) -> None:
    """Raise `BadOption` if a browser's tickets show other *shards*, or if they hold messages."""
    ids = {info.id for info in infos}
    missing = {queue for queue, of, _ in shards if queue not in ids or of != int(magazine)}
    if missing:
        why = "which the query no longer reads, or reads in another magazine"
        _refuse(connection, tickets, sorted(missing), why)
    held = connection.scalars(
        select(slices.c.queue_id).where(*of_tickets(tickets)).distinct()
    ).all()
    if held:
        _refuse(connection, tickets, held, "which the query took without ack=browse")


def _refuse(
    connection: Connection, tickets: TicketRange, queue_ids: Sequence[int], why: str
) -> None:
    """Raise `BadOption` with the names of those queues that still exist, if there are any."""
    these = dialect.one_of(queues.c.id, queue_ids)
    names = connection.scalars(select(queues.c.name).where(these).order_by(queues.c.name)).all()
    if not names:
        return
    quoted = ", ".join(f"queue {name!r}" for name in names)
    raise BadOption(
        f"ignis source: the last batch of consumer {tickets.consumer.name!r}, which is not "
        f"committed, has messages of {quoted}, {why}; nothing was changed. Run the query once "
        "more with its former queues and options, and with trigger(availableNow=True), which "
        "commits the batch. Then change the options"
    )
