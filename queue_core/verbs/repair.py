"""Repair: put quarantined messages back after their segments were restored.

First each segment is read, and its checksums are verified. Changes: damaged slices of sound
segments are loaded again at their places. Those of a ticket are fired again under it, since their
consumer may still settle them. Many slices are put back in rounds, each of which is whole in
itself. Guard: the slices are locked. Crash before a commit: those of its round are still damaged. A
segment that is damaged after it was read is quarantined again by the next firing that reads it.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection

from queue_core.catalog import queue_changes
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import progress
from queue_core.catalog.slices import quarantined
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import DAMAGED, in_queue, numbered_above, of_segments
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import Rounds
from queue_core.errors import DamagedSegment
from queue_core.segments.storage import Storage
from queue_core.verbs.quarantine import past_damage, quarantine

#: The most slices that one transaction puts back.
ROUND_SLICES = 1000


class StillDamaged(NamedTuple):
    """A segment whose messages stay quarantined."""

    #: The location of its file in the storage; ``inlined/`` and its number without one.
    file: str
    #: What is wrong with it.
    reason: str
    #: How many messages of the queue are in it.
    messages: int
    #: What brings them back.
    remedy: str


class Repaired(NamedTuple):
    """What a repair has done."""

    #: How many messages were put back.
    messages: int
    #: The segments that are still damaged.
    left: tuple[StillDamaged, ...]

    def all_or_error(self) -> int:
        """Return how many were put back; raises `DamagedSegment`, which names what is left."""
        if self.left:
            stay = (
                f"{each.messages:,} in quarantine: {each.reason}; {each.remedy}"
                for each in self.left
            )
            raise DamagedSegment(f"{self.messages:,} messages put back, {', '.join(stay)}")
        return self.messages


def repair(catalog: Catalog, storage: Storage, queue_id: int) -> Repaired:
    """Put the damaged messages of a queue, and of its snapshots, back whose segments are sound."""
    # Segments that another storage lacks are not damaged.
    storage.check(again=True)
    # A report from before the file was restored would set its messages apart again.
    past_damage(lambda: quarantine(catalog, storage))
    with catalog.read() as connection:
        kept = queue_changes.snapshots(connection, queue_id)
    for snapshot_id in kept:
        _repair(catalog, storage, snapshot_id)
    return _repair(catalog, storage, queue_id)


def _repair(catalog: Catalog, storage: Storage, queue_id: int) -> Repaired:
    sound, messages, left = [], 0, []
    with catalog.read() as connection:
        found = quarantined.find(connection, [queue_id])
    for one in found:
        # One transaction each, since large segments are read for long.
        with catalog.read() as connection:
            fault = quarantined.fault_of(connection, storage, one.segment_id)
        if fault is None:
            sound.append(one.segment_id)
            messages += one.messages
        else:
            left.append(StillDamaged(one.name, fault, one.messages, quarantined.remedy(one)))
    progress.add(expected=messages)
    damaged = (*in_queue(queue_id), *DAMAGED, *of_segments(sound))

    def work(connection: Connection, begin: int) -> tuple[int, int | None]:
        changes, repaired = Changes(), 0
        # By their ids: those that are damaged again meanwhile wait for the next call.
        following = (*damaged, *numbered_above(begin))
        found = fetch(connection, *following, limit=ROUND_SLICES, lock="wait")
        for piece in found:
            if piece.ticket is None:
                changes.release(piece, piece.rows)
            else:
                changes.refire(piece, piece.rows)
            repaired += len(piece.rows)
        changes.apply(connection)
        last = max(piece.id for piece in found) if len(found) == ROUND_SLICES else None
        return repaired, last

    rounds = Rounds(catalog, "repair")
    if sound:
        rounds.through(work, 0)
    return Repaired(rounds.done, tuple(left))
