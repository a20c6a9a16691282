"""Expire: what nobody has finished in time is gone.

Changes: slices that wait, and whose messages were loaded too long ago, are removed; so is what says
itself that it is not wanted any more (`overdue`). Guard: it takes turns with those who fire; what
is in flight is left alone, and expires when it comes back. A slice of a compacted segment has
messages of several ages: which of them are too old is read from the segment beforehand, and the
others are a slice of their own. Crash before a commit: that batch waits still, and no firing gives
it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from queue_core import faults
from queue_core.catalog import dialect, read_plans
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import id_map, slices
from queue_core.catalog.task_log import Moves
from queue_core.model import Magazine, QueueInfo, Slice, State
from queue_core.plan import Taken
from queue_core.rows import EMPTY, Rows
from queue_core.segments.reader import read_table
from queue_core.selection.acquire import acquire, anything
from queue_core.selection.candidates import find_candidates
from queue_core.selection.conditions import expired
from queue_core.selection.queue_rules import of_expiry
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.selection import Selection

#: Messages that one transaction removes at most.
BATCH = 100_000


@dataclass(frozen=True, slots=True)
class _Ages:
    """When some rows of a segment were loaded."""

    rows: npt.NDArray[np.int64]
    loaded_at: npt.NDArray[np.int64]

    @property
    def known(self) -> Rows:
        """The rows."""
        return Rows.of_numbers(self.rows)

    def before(self, time: int) -> Rows:
        """The rows that were loaded by then."""
        return Rows.of_numbers(self.rows[self.loaded_at <= time])

    def oldest(self, rows: Rows) -> int:
        """When the first of some of the rows was loaded."""
        return int(self.loaded_at[np.isin(self.rows, rows.numbers())].min())


def expire(catalog: Catalog, storage_uri: str, queue: QueueInfo) -> int:
    """Remove the waiting messages that are too old; return how many. Raises `DamagedSegment`."""
    rules = expired(queue)
    gone = _expire_by_column(catalog, storage_uri, queue)
    for magazine in Magazine if rules else ():
        wanted = FireRequest(queue_ids=(queue.id,), magazine=magazine, rules=rules)
        with catalog.read() as connection:
            if not anything(connection, wanted):
                continue
        ages = _ages(catalog, storage_uri, queue, wanted)
        while batch := _remove(catalog, queue, wanted, ages):
            gone += batch
    return gone


def _remove(
    catalog: Catalog, queue: QueueInfo, wanted: FireRequest, ages: Mapping[int, _Ages]
) -> int:
    expiry = int((queue.settings.message_expiry or 0) * 1e6)

    def work(connection: Connection) -> int:
        taken = acquire(connection, wanted, "wait")
        before = dialect.read_clock(connection) - expiry
        compacted = _compacted(connection, taken)
        changes, moves = Changes([queue]), Moves()
        for piece, rows in taken:
            gone = rows
            if piece.segment_id in compacted:
                its = ages.get(piece.segment_id)
                if its is None or rows - its.known:
                    # It was compacted or came back just now: the next time.
                    continue
                gone = rows & its.before(before)
                younger = rows - gone
                if younger:
                    oldest = its.oldest(younger)
                    changes.put(piece, younger, state=int(State.LOADED), loaded_at=oldest)
            changes.keep(piece, piece.rows - rows if rows is not piece.rows else EMPTY)
            changes.count(piece, expired=len(gone))
            changes.fire(piece, gone)
            moves.add(piece, len(gone), None)
        changes.apply(connection)
        moves.record(connection, queue.id, "expire")
        faults.point("expire.before_commit")
        return len(moves)

    gone = catalog.write(work)
    faults.point("expire.committed")
    return gone


def _compacted(connection: Connection, taken: list[Taken]) -> set[int]:
    """Which of the segments have messages of several ages."""
    segments = {piece.segment_id for piece, _ in taken}
    these = dialect.one_of(connection, id_map.c.segment_id, list(segments))
    return set(connection.scalars(select(id_map.c.segment_id).where(these)))


def _ages(
    catalog: Catalog, storage_uri: str, queue: QueueInfo, wanted: FireRequest
) -> dict[int, _Ages]:
    """When the messages of compacted slices were loaded, by segment."""
    of_compacted = select(id_map.c.segment_id).where(id_map.c.queue_id == queue.id)
    with catalog.read() as connection:
        mixed = fetch(
            connection,
            slices.c.queue_id == queue.id,
            slices.c.magazine == int(wanted.magazine),
            slices.c.state == int(State.LOADED),
            slices.c.segment_id.in_(of_compacted),
            *wanted.rules,
        )
        by_segment: dict[int, list[Slice]] = {}
        for piece in mixed:
            by_segment.setdefault(piece.segment_id, []).append(piece)
        found = {
            segment: read_plans.build(
                connection, [queue], [(s, s.rows) for s in pieces], storage_uri
            )
            for segment, pieces in by_segment.items()
        }
    ages = {}
    for segment, reading in found.items():
        rows = [
            # In this order they are read.
            np.sort(np.concatenate([part.rows.numbers() for part in piece.parts]))
            for piece in reading.tasks
        ]
        times = read_table(reading, ["_loaded_at"]).column("_loaded_at").cast("int64").to_numpy()
        ages[segment] = _Ages(np.concatenate(rows).astype(np.int64), times)
    return ages


def _expire_by_column(catalog: Catalog, storage_uri: str, queue: QueueInfo) -> int:
    """Remove the waiting messages whose own time is over; return how many."""
    selection = Selection.parse([queue], storage_uri, eligibility=of_expiry)
    gone = 0
    for magazine in Magazine if selection is not None else ():
        wanted = FireRequest(
            queue_ids=(queue.id,), magazine=magazine, max_messages=BATCH, selection=selection
        )
        while (picked := find_candidates(catalog, wanted)) is not None and len(picked.ids):
            gone += catalog.write(partial(_remove_chosen, queue, wanted, picked))
            faults.point("expire.committed")
    return gone


def _remove_chosen(
    queue: QueueInfo, wanted: FireRequest, picked: Candidates, connection: Connection
) -> int:
    changes, moves = Changes([queue]), Moves()
    for piece, rows in acquire(connection, wanted, "wait", picked):
        changes.remove(piece, rows, "expired")
        moves.add(piece, len(rows), None)
    changes.apply(connection)
    moves.record(connection, queue.id, "expire")
    faults.point("expire.before_commit")
    return len(moves)
