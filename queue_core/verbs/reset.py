"""Reset: put kept messages back, so that they are fired again.

Changes: slices that keepers hold are loaded again at their old places, or all slices of a consumer
that leaves. Guard: the slices are locked; only slices of this process's keeper and of dead keepers
are reset, or those of a named keeper, alive or not. A consumer that leaves is in its present
epoch. Crash before the commit: the messages are still kept. Crash after it: they wait.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import abandoned
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS, check
from queue_core.catalog.identity import clock
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import IN_FLIGHT, Rules, held_by, in_magazines, in_queue
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import Guard, transact
from queue_core.errors import BadOption
from queue_core.values.model import Consumer, Magazine, QueueInfo
from queue_core.values.names import KEEPER, nearest


def reset(
    catalog: Catalog, queue: QueueInfo, keeper: Consumer | None, consumer: str | None = None
) -> int:
    """
    Load kept messages again at their old places; return how many.

    They are those of *keeper* and of dead keepers; with *consumer*, those of the keeper of that
    name. Raises `BadOption` if there is none, and `CatalogUnavailable` if the clock has jumped.
    """
    if consumer is not None:
        kept = abandoned.of_keeper(_keeper(catalog, consumer))
    else:
        kept = abandoned.of_keepers(DEAD_AFTER_SECONDS, also=keeper)
    # After a jump of the clock, living keepers look dead.
    guard = clock.confirm if consumer is None else None
    return _reset(catalog, queue, (*in_magazines([*Magazine]), *kept), guard)


def put_back(catalog: Catalog, queue: QueueInfo, consumer: Consumer) -> int:
    """
    Load all messages of a queue that *consumer* holds at their old places; return how many.

    Raises `ConsumerFenced`.
    """
    return _reset(catalog, queue, held_by(consumer.id), lambda c: check(c, consumer))


def _reset(catalog: Catalog, queue: QueueInfo, held: Rules, guard: Guard | None) -> int:
    def work(connection: Connection) -> int:
        kept = fetch(connection, *in_queue(queue.id), *IN_FLIGHT, *held, lock="wait")
        changes = Changes([queue])
        for piece in kept:
            changes.reload(piece, piece.rows)
        changes.apply(connection)
        return sum(len(piece.rows) for piece in kept)

    return transact(catalog, "reset", work, guard)


def _keeper(catalog: Catalog, name: str) -> str:
    """Return the name of the keeper of this name, or of the query with `consumer=` this name."""
    with catalog.read() as connection:
        known = abandoned.keepers(connection)
    for found in (name, f"{KEEPER}{name}"):
        if found in known:
            return found
    raise BadOption(
        f"consumer={name!r}{nearest(str(name), known)}: use the name of a consumer that keeps "
        "messages; the view consumers shows the names"
    )
