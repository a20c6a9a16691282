"""Quarantine: mark the messages of unreadable segments as damaged.

A reader that finds a segment missing, torn or altered leaves a report in the storage, because it
may have no catalog. Changes: the slices of reported segments become damaged. They are never fired,
and the views show them. Fired ones stay in their ticket, because their consumer may have read them
before: it can settle them, and until then they do not come again. Guard: the slices are locked.
Subscriptions take in what a log has of them first. Crash before the commit: the report remains, and
the next call reads it. The rest of the queue stays readable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import publications
from queue_core.catalog.slices import logs, segments
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import DAMAGED, SOUND, of_segments, of_tickets
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import transact
from queue_core.errors import CatalogForbidden, DamagedSegment
from queue_core.segments.storage import Storage
from queue_core.values.model import INLINE, State, TicketRange
from queue_core.verbs.take_in import take_in

Result = TypeVar("Result")


def quarantine(catalog: Catalog, storage: Storage) -> int:
    """
    Mark the messages of reported segments as damaged; return how many.

    The reports stay if a caller's transaction locks some of them, or a subscription to their log.
    """
    reports = storage.damage_reports()
    if not reports:
        return 0
    # Segments that another storage lacks are not damaged.
    storage.check(again=True)

    with catalog.read() as connection:
        damaged = _damaged(connection, list(reports))
        readers = logs.readers_of(connection, damaged)
    work, seconds = partial(set_apart, names=list(reports)), dialect.TASK_LOCK_SECONDS
    try:
        for reader in readers:
            # Otherwise, a later intake would bring further messages of these segments.
            try:
                take_in(catalog, storage.uri, [reader], unread=damaged, seconds=seconds)
            except dialect.StillLocked:
                # A caller's transaction has fired from it. The reports stay for the next call.
                reports = {}
        try:
            quarantined = transact(catalog, "quarantine", work, seconds=seconds)
        except dialect.StillLocked:
            # A caller's transaction has fired some of them: set the others apart now.
            reports, free = {}, partial(work, lock="skip")
            quarantined = transact(catalog, "quarantine", free, seconds=seconds)
    except dialect.StillLocked:
        return 0
    except CatalogForbidden:
        # A role that only reads leaves the reports to others.
        return 0
    for name in reports:
        storage.forget_damage(name)
    return quarantined


def set_apart(connection: Connection, names: Sequence[str], lock: str = "wait") -> int:
    """Mark the messages of segments, by their locations, as damaged; return how many."""
    damaged = fetch(connection, *of_segments(_damaged(connection, names)), *SOUND, lock=lock)
    changes = Changes()
    for piece in damaged:
        changes.mark(piece, piece.rows, state=int(State.DAMAGED))
        changes.count(piece, damaged=len(piece.rows))
        if piece.ticket is not None:
            # While they are damaged, fired messages count as reloaded, so that the counters add up.
            changes.count(piece, reloaded=len(piece.rows))
    changes.apply(connection)
    return sum(len(piece.rows) for piece in damaged)


def leave_tickets(connection: Connection, tickets: TicketRange) -> int:
    """
    Let damaged messages leave tickets that are planned without them; return how many.

    They stay if a batch with these tickets is published: they are in it. Runs within a transaction.
    """
    recorded = publications.newest_ticket(connection, tickets.consumer.name)
    if recorded is not None and recorded >= tickets.upto:
        return 0
    damaged = fetch(connection, *of_tickets(tickets), *DAMAGED, lock="wait")
    changes = Changes()
    for piece in damaged:
        changes.leave_ticket(piece, piece.rows)
    changes.apply(connection)
    return sum(len(piece.rows) for piece in damaged)


class quarantining(AbstractContextManager[object]):
    """Quarantines segments that the block finds damaged, so that the next call skips them."""

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, DamagedSegment):
            quarantine(self._catalog, self._storage)


def past_damage(work: Callable[[], Result]) -> Result:
    """
    Repeat work that quarantines what it finds damaged, until it finds no damage.

    Raises `DamagedSegment` if it finds the same damage twice, because no report can be written.
    """
    found: set[str] = set()
    while True:
        try:
            return work()
        except DamagedSegment as error:
            if str(error) in found:
                raise
            found.add(str(error))


def _damaged(connection: Connection, names: Sequence[str]) -> list[int]:
    """Return the ids of reported segments; the report of an inlined one names its id."""
    numbers = (name.removeprefix(INLINE) for name in names if name.startswith(INLINE))
    inlined = [int(number) for number in numbers if number.isdecimal()]
    files = [name for name in names if not name.startswith(INLINE)]
    return [*inlined, *segments.at(connection, files)]
