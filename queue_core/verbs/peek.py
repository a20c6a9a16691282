"""Peek: look at messages without taking them. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from queue_core.catalog import Catalog, dialect, readings
from queue_core.catalog.slices import Place, fetch
from queue_core.catalog.tables import slices
from queue_core.model import Magazine, QueueInfo, Reading, Slice, State
from queue_core.rows import Rows
from queue_core.verbs.choose import Wanted, choose
from queue_core.verbs.pick import pick

#: From (inclusive) and to (exclusive) which place of each shard.
Window = Mapping[Place, tuple[int, int]]


def peek(catalog: Catalog, storage_uri: str, queue: QueueInfo, wanted: Wanted) -> Reading:
    """How to read the messages that such a firing would take now."""
    picked = pick(catalog, wanted)
    with catalog.read() as connection:
        chosen = choose(connection, wanted, None, picked)
        return readings.build(connection, [queue], chosen, storage_uri)


def browse(
    catalog: Catalog,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    magazine: Magazine,
    window: Window | None = None,
) -> Reading:
    """How to read everything that is in a magazine, waiting or in flight, or a window of it."""
    with catalog.read() as connection:
        return browse_within(connection, storage_uri, queues, magazine, window)


def browse_within(
    connection: Connection,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    magazine: Magazine,
    window: Window | None,
) -> Reading:
    """The same within a transaction."""
    found = fetch(
        connection,
        dialect.one_of(connection, slices.c.queue_id, [queue.id for queue in queues]),
        slices.c.magazine == int(magazine),
        slices.c.state != int(State.DAMAGED),
    )
    seen = [(piece, _seen(piece, window)) for piece in found]
    return readings.build(
        connection, queues, [(piece, rows) for piece, rows in seen if rows], storage_uri
    )


def _seen(piece: Slice, window: Window | None) -> Rows:
    if window is None:
        return piece.rows
    place = (piece.queue_id, int(piece.magazine), piece.shard)
    start, stop = window.get(place, (0, 0))
    first = piece.rows.start - piece.position
    return piece.rows.between(max(start + first, 0), max(stop + first, 0))
