"""Quarantine: set apart the messages of segments that cannot be read.

Whoever finds a segment missing, torn or altered leaves word of it in the storage, for it may have
no catalog. Changes: the slices of such segments become damaged: never fired, never forgotten, and
shown in the views. Guard: the slices are locked. The rest of the queue stays readable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, select

from queue_core import faults
from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import segments, slices
from queue_core.errors import DamagedSegment
from queue_core.model import INLINE, State
from queue_core.segments.storage import Storage


def quarantine(catalog: Catalog, storage: Storage) -> int:
    """Set apart what was reported as damaged; return how many messages."""
    reports = storage.damage_reports()
    if not reports:
        return 0

    def work(connection: Connection) -> int:
        changes = Changes()
        apart = 0
        for piece in fetch(
            connection,
            dialect.one_of(connection, slices.c.segment_id, _damaged(connection, list(reports))),
            slices.c.state != int(State.DAMAGED),
            lock="wait",
        ):
            was_fired = piece.ticket is not None
            changes.mark(piece, piece.rows, state=int(State.DAMAGED), consumer_id=None, ticket=None)
            # One that was fired counts as given back first, so that the counters add up.
            changes.count(
                piece, damaged=len(piece.rows), reloaded=len(piece.rows) if was_fired else 0
            )
            apart += len(piece.rows)
        changes.apply(connection)
        faults.point("quarantine.before_commit")
        return apart

    apart = catalog.write(work)
    faults.point("quarantine.committed")
    for name in reports:
        storage.forget_damage(name)
    return apart


@contextmanager
def setting_apart(catalog: Catalog, storage: Storage) -> Iterator[None]:
    """Set apart what turns out to be damaged, so that the next call goes without it."""
    try:
        yield
    except DamagedSegment:
        quarantine(catalog, storage)
        raise


def _damaged(connection: Connection, names: list[str]) -> list[int]:
    numbers = (name.removeprefix(INLINE) for name in names if name.startswith(INLINE))
    inlined = [int(number) for number in numbers if number.isdecimal()]
    files = [name for name in names if not name.startswith(INLINE)]
    found = connection.scalars(
        select(segments.c.id).where(dialect.one_of(connection, segments.c.location, files))
    )
    return [*inlined, *found]
