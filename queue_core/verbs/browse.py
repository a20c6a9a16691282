"""Browse: see every message once, and take none.

A browser's ticket holds no slices but a window of places of each shard, from where its last ticket
ended to the load pointers. Changes: the ticket alone. Guard: the consumer's epoch. What is deleted
between firing and reading is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, select

from queue_core.catalog import Catalog, consumers
from queue_core.catalog.slices import Place
from queue_core.catalog.tables import tickets
from queue_core.model import Consumer, Magazine, QueueInfo, Reading, Ticket
from queue_core.plan import share
from queue_core.verbs.choose import Wanted, horizon
from queue_core.verbs.peek import browse_within

_Windows = dict[Place, tuple[int, int]]


def browse_next(catalog: Catalog, consumer: Consumer, wanted: Wanted) -> Ticket | None:
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
) -> Reading:
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
