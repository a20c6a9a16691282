"""Recover: give back what was fired and never seen by anybody.

A query that dies between firing and Spark's offset log leaves a ticket that nothing refers to. When
its consumer is dead, the messages go back to their old places, as if they had not been fired.
Changes: the ticket's slices are loaded again. Guard: only tickets that were never planned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, delete, false, or_, select

from queue_core import faults
from queue_core.catalog import dialect
from queue_core.catalog.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import consumers, slices, tickets


def recover(catalog: Catalog, dead_after: float = DEAD_AFTER_SECONDS) -> int:
    """Give back the unseen tickets of consumers that died; return how many messages."""
    with catalog.read() as connection:
        if not connection.execute(_unseen(connection, dead_after).limit(1)).first():
            return 0

    def work(connection: Connection) -> int:
        # A consumer that is at work now, and so holds its own row, is not dead.
        unseen = dialect.skip_locked(
            connection, _unseen(connection, dead_after), tickets, consumers
        )
        numbers: dict[int, list[int]] = defaultdict(list)
        for consumer_id, number in connection.execute(unseen):
            numbers[consumer_id].append(number)
        changes = Changes()
        given_back = 0
        for piece in fetch(connection, _of(connection, slices, numbers, "ticket"), lock="wait"):
            changes.release(piece, piece.rows, deliveries=piece.deliveries - 1)
            changes.count(piece, reloaded=len(piece.rows))
            given_back += len(piece.rows)
        changes.apply(connection)
        connection.execute(delete(tickets).where(_of(connection, tickets, numbers, "number")))
        faults.point("recover.before_commit")
        return given_back

    given_back = catalog.write(work)
    faults.point("recover.committed")
    return given_back


def _of(
    connection: Connection, table: Table, numbers: Mapping[int, list[int]], column: str
) -> ColumnElement[bool]:
    """The rows of these tickets: *numbers* by consumer."""
    return or_(
        false(),
        *(
            and_(table.c.consumer_id == consumer, dialect.one_of(connection, table.c[column], of))
            for consumer, of in numbers.items()
        ),
    )


def _unseen(connection: Connection, dead_after: float) -> Select[tuple[int, int]]:
    dead = dialect.now() - int(dead_after * 1e6)
    return (
        select(tickets.c.consumer_id, tickets.c.number)
        .join(consumers, consumers.c.id == tickets.c.consumer_id)
        .where(
            tickets.c.planned_at.is_(None),
            # A browser's holds nothing, and says where to go on.
            tickets.c.browsed.is_(None),
            consumers.c.heartbeat_at < dead,
        )
    )
