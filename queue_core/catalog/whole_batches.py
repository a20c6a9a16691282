"""
Whole batches: refuse to plan a batch without some of its messages.

The options of a query can change while its last batch is not committed. A plan without the messages
of a former queue would let Spark commit the batch, and the source delete messages that nobody saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, not_, or_, select

from queue_core.catalog import dialect
from queue_core.catalog.slices import ShardKey, of_tickets
from queue_core.catalog.tables import consumers, queues, slices
from queue_core.errors import BadOption
from queue_core.model import Magazine, QueueInfo, State, TicketRange


def check_held(connection: Connection, infos: Sequence[QueueInfo], tickets: TicketRange) -> bool:
    """
    Raise `BadOption` if tickets hold messages of other queues.

    Return whether they hold damaged ones.
    """
    ids = [info.id for info in infos]
    known = dialect.of(connection).one_of(slices.c.queue_id, ids)
    is_damaged = slices.c.state == int(State.DAMAGED)
    found = connection.execute(
        select(slices.c.queue_id, is_damaged.label("damaged"))
        .where(*of_tickets(tickets), or_(not_(known), is_damaged))
        .distinct()
    ).all()
    missing = sorted({row.queue_id for row in found} - set(ids))
    if missing:
        _refuse(connection, tickets, missing, "which the query no longer reads")
    return any(row.damaged for row in found)


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
    these = dialect.of(connection).one_of(queues.c.id, queue_ids)
    names = connection.scalars(select(queues.c.name).where(these).order_by(queues.c.name)).all()
    if not names:
        return
    consumer = connection.scalar(
        select(consumers.c.name).where(consumers.c.id == tickets.consumer_id)
    )
    raise BadOption(
        f"ignis source: the last batch of consumer {consumer!r}, which is not committed, has "
        f"messages of {', '.join(f'queue {name!r}' for name in names)}, {why}; nothing was "
        "changed. Run the query once more with its former queues and options, and with "
        "trigger(availableNow=True), which commits the batch. Then change the options"
    )
