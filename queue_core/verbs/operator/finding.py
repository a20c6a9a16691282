"""Find the messages that a person means: by id, by a selector, or all of a magazine.

The search reads one state of the catalog and takes nothing. Unlike a firing, it also finds messages
in flight. It never finds damaged messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.slices import id_map
from queue_core.catalog.slices.conditions import SOUND, in_magazines, in_queue, of_few_segments
from queue_core.catalog.slices.slices import fetch
from queue_core.selection.scan import ID, SliceScan
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.plan import Taken, having, packed
from queue_core.values.rows import Numbers

if TYPE_CHECKING:
    from queue_core.selector import Condition

#: About how many rows are examined at a time.
_STEP_ROWS = 1 << 18


def find(
    connection: Connection,
    storage_uri: str,
    queue: QueueInfo,
    magazines: Sequence[Magazine],
    ids: IdSet | None = None,
    condition: Condition | None = None,
) -> IdSet:
    """Return the ids of messages that are there: of *ids*, and that meet a condition."""
    found = present(connection, queue, magazines, ids)
    if condition is None:
        return IdSet.of(id_map.ids_of(connection, found))
    rows = _matching(connection, storage_uri, queue, found, condition)
    return IdSet.of(id_map.logical(connection, rows))


def present(
    connection: Connection, queue: QueueInfo, magazines: Sequence[Magazine], ids: IdSet | None
) -> list[Taken]:
    """Return the rows of slices that hold messages, waiting or in flight; of *ids*, or all."""
    there = (*in_magazines(magazines), *SOUND)
    if ids is None:
        found = fetch(connection, *in_queue(queue.id), *there)
        return [(piece, piece.rows) for piece in found]
    located = id_map.located(connection, [queue.id], ids)
    here = of_few_segments(queue.id, located.segments)
    return having(fetch(connection, *here, *there), located)


def _matching(
    connection: Connection,
    storage_uri: str,
    queue: QueueInfo,
    taken: Sequence[Taken],
    condition: Condition,
) -> Numbers:
    """Return the rows that meet a condition, as ids. Statistics decide about some slices."""
    # Not at the top: it imports what evaluates columns.
    from queue_core.selection.fifo_scan import decided_by_stats

    scan = SliceScan(connection, [queue], storage_uri, dialect.read_clock(connection))
    decided = [(each, decided_by_stats(scan, each[0], [condition])) for each in taken]
    sure = [each for each, result in decided if result]
    parts = [id_map.rows_of(sure)]
    for step in _steps([each for each, result in decided if result is None]):
        rows = scan.table(step, condition.columns)
        parts.append(rows.filter(condition.mask(rows)).column(ID).to_numpy())
    return np.concatenate(parts)


def _steps(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """Cut slices, in the order of `fetch`, into steps of one magazine."""
    # A scan reads one magazine: places say nothing about the order of two.
    for _, of_one in groupby(taken, key=lambda each: each[0].magazine):
        here = list(of_one)
        yield from packed(here, [(len(rows),) for _, rows in here], [_STEP_ROWS])
