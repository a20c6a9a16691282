"""Windows: the places that the tickets of a browser show, which hold no slices."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import Connection, select

from queue_core.catalog.damage import decoding
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import tickets
from queue_core.values.model import TicketRange

#: The first place (inclusive) and the last one (exclusive), by shard.
Window = Mapping[ShardKey, tuple[int, int]]


def packed(window: Window) -> str:
    """Return a window as a ticket stores it."""
    return json.dumps({"/".join(map(str, key)): places for key, places in window.items()})


def of_tickets(connection: Connection, browsed: TicketRange) -> Window:
    """Return the common window of tickets; consecutive tickets have adjacent windows."""
    query = select(tickets.c.browsed).where(
        tickets.c.consumer_id == browsed.consumer.id,
        tickets.c.number > browsed.after,
        tickets.c.number <= browsed.upto,
        tickets.c.browsed.is_not(None),
    )
    window: dict[ShardKey, tuple[int, int]] = {}
    for text in connection.scalars(query.order_by(tickets.c.number)):
        with decoding(tickets, f"consumer_id {browsed.consumer.id} and a window"):
            for path, (begin, end) in json.loads(text).items():
                queue_id, magazine, shard = map(int, path.split("/"))
                key = (queue_id, magazine, shard)
                window[key] = (window.get(key, (begin, end))[0], end)
    return window
