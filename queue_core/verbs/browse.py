"""Browse: see every message once, and take none.

A browser's ticket holds no slices but a window of places of each shard, from where its last ticket
ended to the load pointers. Changes: the ticket alone. Guard: the consumer's epoch. What is deleted
between firing and reading is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from queue_core.catalog import consumers, dialect, read_plans
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import ShardKey, fetch
from queue_core.catalog.tables import slices, tickets
from queue_core.model import Consumer, Magazine, QueueInfo, ReadPlan, Slice, State, Ticket
from queue_core.plan import share
from queue_core.rows import Rows
from queue_core.selection.acquire import horizon
from queue_core.selection.request import FireRequest

_Windows = dict[ShardKey, tuple[int, int]]


def browse_next(catalog: Catalog, consumer: Consumer, wanted: FireRequest) -> Ticket | None:
    """A ticket for the places that the consumer has not seen; None when there are none."""
    limits = wanted.horizon or horizon(catalog, wanted.queue_ids, wanted.magazine)
    with catalog.read() as connection:
        seen = _windows(connection, consumer.id, 0, None)
    begins = {place: seen.get(place, (0, 0))[1] for place in limits.pointers}
    new = {place: end - begins[place] for place, end in limits.pointers.items()}
    messages = sum(count for count in new.values() if count > 0)
    if messages == 0:
        return None
    shares = share(new, min(wanted.max_messages or messages, messages))
    windows = {p: (begin, begin + shares.get(p, 0)) for p, begin in begins.items()}
    text = json.dumps({"/".join(map(str, place)): window for place, window in windows.items()})

    def work(connection: Connection) -> Ticket:
        number, fired_at = consumers.new_ticket(connection, consumer, seen=False, browsed=text)
        count = sum(shares.values())
        return Ticket(consumer=consumer, number=number, fired_at=fired_at, messages=count)

    return catalog.write(work)


def browsed(
    catalog: Catalog,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    magazine: Magazine,
    consumer_id: int,
    after: int,
    upto: int,
) -> ReadPlan:
    """How to read what a browser's tickets *after* (exclusive) to *upto* (inclusive) show."""
    with catalog.read() as connection:
        windows = _windows(connection, consumer_id, after, upto)
        return browse_within(connection, storage_uri, queues, magazine, windows)


def _windows(connection: Connection, consumer_id: int, after: int, upto: int | None) -> _Windows:
    """The windows of some tickets together; those of one consumer follow each other."""
    query = select(tickets.c.browsed).where(
        tickets.c.consumer_id == consumer_id,
        tickets.c.number > after,
        tickets.c.browsed.is_not(None),
    )
    if upto is not None:
        query = query.where(tickets.c.number <= upto)
    windows: _Windows = {}
    for text in connection.scalars(query.order_by(tickets.c.number)):
        for key, (begin, end) in json.loads(text).items():
            queue_id, magazine, shard = map(int, key.split("/"))
            place = (queue_id, magazine, shard)
            windows[place] = (windows.get(place, (begin, end))[0], end)
    return windows


#: From (inclusive) and to (exclusive) which place of each shard.
Window = Mapping[ShardKey, tuple[int, int]]


def browse(
    catalog: Catalog,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    magazine: Magazine,
    window: Window | None = None,
) -> ReadPlan:
    """How to read everything that is in a magazine, waiting or in flight, or a window of it."""
    with catalog.read() as connection:
        return browse_within(connection, storage_uri, queues, magazine, window)


def browse_within(
    connection: Connection,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    magazine: Magazine,
    window: Window | None,
) -> ReadPlan:
    """The same within a transaction."""
    found = fetch(
        connection,
        dialect.one_of(connection, slices.c.queue_id, [queue.id for queue in queues]),
        slices.c.magazine == int(magazine),
        slices.c.state != int(State.DAMAGED),
    )
    seen = [(piece, _seen(piece, window)) for piece in found]
    return read_plans.build(
        connection, queues, [(piece, rows) for piece, rows in seen if rows], storage_uri
    )


def _seen(piece: Slice, window: Window | None) -> Rows:
    if window is None:
        return piece.rows
    place = (piece.queue_id, int(piece.magazine), piece.shard)
    start, stop = window.get(place, (0, 0))
    first = piece.rows.start - piece.position
    return piece.rows.between(max(start + first, 0), max(stop + first, 0))
