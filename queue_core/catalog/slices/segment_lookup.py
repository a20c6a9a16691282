"""Where messages come from: the segments of some ids, and whether compactions have moved any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, exists, select

from queue_core.catalog import dialect
from queue_core.catalog.tables import id_map, segments
from queue_core.errors import BadOutcome
from queue_core.values.ids import IdSet, bounds_of, first_id
from queue_core.values.model import QueueInfo


class _Segment(NamedTuple):
    queue_id: int
    rows: int


class Origins(NamedTuple):
    """The segments of some message ids."""

    #: Those that the catalog has, by their numbers.
    segments: Mapping[int, _Segment]
    #: Whether a compaction may have moved one of the messages to another segment.
    moved: bool
    #: Whether a compaction has made one of the segments.
    compacted: bool


def find(connection: Connection, queues: Sequence[QueueInfo], ids: IdSet) -> Origins:
    """Return the origins of messages of some queues, with one statement."""
    if not len(ids):
        return Origins({}, moved=False, compacted=False)
    first, last = bounds_of(ids)
    of_queues = [queue.id for queue in queues]
    given = {"these": ids.segments, "of_queues": of_queues, "first": first, "last": last}
    rows = connection.execute(_FINDING, given).all()
    return Origins(
        {row.id: _Segment(row.queue_id, row.rows) for row in rows if row.id is not None},
        moved=bool(rows[0].moved),
        compacted=any(row.compacted for row in rows),
    )


def check(
    connection: Connection,
    queues: Sequence[QueueInfo],
    ids: IdSet,
    origins: Origins | None = None,
    *,
    fired: bool = False,
) -> None:
    """
    Raise `BadOutcome` for an id that no message of the queues can have.

    *ids* are rows that hold messages now, and *origins* theirs, if they are known. *fired*: whether
    all were fired, so that one that the catalog has never had was lost with a transaction.
    """
    known = (origins or find(connection, queues, ids)).segments
    queue_ids = {queue.root for queue in queues}
    # Afterwards: no segment that was found is newer.
    gone = len(known) < len(ids.segments)
    newest = dialect.of(connection).last_id(connection, segments) if gone else max(known, default=0)
    for number in ids.segments:
        rows, segment = ids.rows(number), known.get(number)
        if segment is None:
            if fired or 1 <= number <= newest:
                continue
            strange = rows.start
        elif segment.queue_id not in queue_ids:
            strange = rows.start
        elif rows.stop > segment.rows:
            strange = rows.stop - 1
        else:
            continue
        names = ", ".join(repr(queue.name) for queue in queues)
        raise BadOutcome(
            f"message {first_id(number) + strange} is not of queue {names}; "
            "take the ids from its _message_id column"
        )


_MOVED = exists().where(
    dialect.one_of_given(id_map.c.queue_id, "of_queues"),
    id_map.c.last_id >= bindparam("first"),
    id_map.c.first_id <= bindparam("last"),
)
# At least one row, even if the catalog has none of the segments.
_ONE = select(_MOVED.label("moved")).subquery()
_MADE = exists().where(id_map.c.segment_id == segments.c.id)
_FINDING = select(
    _ONE.c.moved, segments.c.id, segments.c.queue_id, segments.c.rows, _MADE.label("compacted")
).select_from(_ONE.outerjoin(segments, dialect.one_of_given(segments.c.id, "these")))
