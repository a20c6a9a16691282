"""Holders: who must hold messages that are settled, as conditions over slices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, select

from queue_core.catalog import dialect
from queue_core.catalog.consumers import by_name, is_current, own_ids
from queue_core.catalog.tables import consumers, slices
from queue_core.errors import BadOption
from queue_core.ids import IdSet
from queue_core.model import Consumer, Holder, Slice, Ticket


def conditions(connection: Connection, holder: Holder) -> list[ColumnElement[bool]]:
    """
    Return the conditions of slices that the holder holds; raises `BadOption`.

    They are conditions on messages that are found by their segments. A consumer may hold many more,
    so a database without statistics must not begin with its index. A `Consumer` that was started
    again holds nothing: its messages are those of its new life.
    """
    consumer_id = dialect.of(connection).not_indexed(slices.c.consumer_id)
    match holder:
        case Ticket():
            # A thread of the same consumer may hold them now, by a later firing.
            mine = slices.c.consumer_id == holder.consumer.id
            return [mine, slices.c.ticket == holder.number]
        case Consumer():
            return [consumer_id == holder.id, is_current(holder)]
        case str():
            found = by_name(connection, holder)
            if found is None:
                raise BadOption(f"consumer={holder!r} has never fired from this store")
            return [consumer_id == found.id]
        case None:
            return []
        case _:
            own = own_ids(connection)
            return [dialect.of(connection).one_of(consumer_id, own)]


def name_of(holder: Holder) -> str | None:
    """Return the name of the consumer that holds the messages, if it is known."""
    match holder:
        case Ticket():
            return holder.consumer.name
        case Consumer():
            return holder.name
        case str():
            return holder
        case _:
            return None


def of_others(connection: Connection, fired: Iterable[Slice], ids: IdSet) -> dict[str, int]:
    """Return how many of some messages the consumers of other processes hold, by their names."""
    left: dict[int, int] = defaultdict(int)
    for piece in fired:
        if piece.consumer_id is not None:
            left[piece.consumer_id] += len(piece.rows & ids.rows(piece.segment_id))
    these = dialect.of(connection).one_of(consumers.c.id, left.keys() - set(own_ids(connection)))
    names = connection.execute(select(consumers.c.id, consumers.c.name).where(these))
    return {row.name: left[row.id] for row in names if left[row.id]}
