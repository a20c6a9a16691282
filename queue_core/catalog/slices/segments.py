"""Segments in the catalog: publish them, find them for reading, release them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, exists, func, insert, select, update

from queue_core.catalog import dialect
from queue_core.catalog.damage import damaged, decoding
from queue_core.catalog.slices.files import noting
from queue_core.catalog.tables import files, id_map, segments, slices
from queue_core.errors import PublicationRefused
from queue_core.segments.format import pack_chunks, unpack_chunks
from queue_core.values.ids import first_id
from queue_core.values.model import SegmentRef, Staged

_INSERT = (
    insert(segments).values(loaded_at=dialect.now()).returning(segments.c.id, segments.c.loaded_at)
)
_DISCARD = (
    update(files)
    .where(files.c.location == bindparam("gone"))
    .values(state="garbage", since=dialect.now())
)

#: Whether a slice names a segment, or a row of a log.
_NAMED = exists().where(slices.c.segment_id == segments.c.id) | (segments.c.log_rows > 0)
#: The same for few segments. An offset keeps a planner from reading the segments of all slices.
_IS_NAMED = select(slices.c.id).where(slices.c.segment_id == segments.c.id).offset(0).exists() | (
    segments.c.log_rows > 0
)
_THESE = dialect.one_of_given(segments.c.id, "these")
_COMPACTED = exists().where(id_map.c.segment_id == segments.c.id)
_SOURCES = select(segments, _COMPACTED.label("compacted")).where(_THESE)
# For SQLite, a RETURNING names no tables, so that `id_map` must have no column ``id``.
_RELEASE = (
    delete(segments)
    .where(_THESE, ~_IS_NAMED)
    .returning(segments.c.id, segments.c.file, _COMPACTED.label("compacted"))
)
_FORGET_IDS = delete(id_map).where(dialect.one_of_given(id_map.c.segment_id, "these"))


def claim(connection: Connection, locations: Iterable[str]) -> None:
    """
    Make staged files safe from removal.

    Raises `PublicationRefused` when one is being removed: the location is a primary key, which
    publishing and removing both insert, in this order.
    """
    claiming = noting(dialect.of(connection), "live").returning(files.c.location)
    for location in sorted(locations):
        if connection.execute(claiming, {"location": location}).first() is None:
            raise PublicationRefused(
                f"segment {location} was cleaned up, or published before; write the rows again"
            )


def publish(
    connection: Connection, queue_id: int, staged: Staged, log_rows: int = 0
) -> tuple[int, int]:
    """
    Publish a staged segment, whose file is claimed; return its id and the time.

    *log_rows*: how many rows of the queue's log will name it.
    """
    values = {
        "queue_id": queue_id,
        "schema_version": staged.schema_version,
        "file": staged.location,
        "data": staged.data,
        "rows": staged.rows,
        "bytes": staged.bytes,
        "chunks": pack_chunks(staged.chunks),
        "log_rows": log_rows,
    }
    segment_id, loaded_at = connection.execute(_INSERT, values).one()
    return int(segment_id), int(loaded_at)


def sources(connection: Connection, segment_ids: Collection[int]) -> dict[int, SegmentRef]:
    """Return the references by which segments are read, with all of their chunks."""
    found = {}
    for row in connection.execute(_SOURCES, {"these": segment_ids}).all():
        with decoding(segments, f"id {row.id}"):
            found[row.id] = _source(row)
    lost = set(segment_ids) - found.keys()
    if lost:
        raise damaged(segments, f"id {min(lost)}", "slices name it, and it is missing")
    return found


def present(connection: Connection, segment_ids: Collection[int]) -> set[int]:
    """Return those of some segments that are there."""
    here = dialect.one_of(segments.c.id, segment_ids)
    return set(connection.scalars(select(segments.c.id).where(here)))


def unnamed(connection: Connection) -> dict[int, str | None]:
    """Return segments that nothing names, and their files: settlements left them to each other."""
    return dict(connection.execute(select(segments.c.id, segments.c.file).where(~_NAMED)).all())


def count(connection: Connection) -> int:
    """Return how many segments there are."""
    return int(connection.scalar(select(func.count()).select_from(segments)) or 0)


def at(connection: Connection, locations: Collection[str]) -> Sequence[int]:
    """Return the segments that are in some files."""
    here = dialect.one_of(segments.c.file, locations)
    return connection.scalars(select(segments.c.id).where(here)).all()


def of_queue(connection: Connection, queue_id: int) -> Sequence[int]:
    """Return the segments of a queue."""
    return connection.scalars(select(segments.c.id).where(segments.c.queue_id == queue_id)).all()


def of_slices(connection: Connection, queue_id: int) -> Sequence[int]:
    """Return the segments that slices of a queue name."""
    named = select(slices.c.segment_id).where(slices.c.queue_id == queue_id).distinct()
    return connection.scalars(named).all()


def release(connection: Connection, segment_ids: Collection[int]) -> None:
    """Remove the segments that no slice and no log names; their files become garbage."""
    if not segment_ids:
        return
    gone = connection.execute(_RELEASE, {"these": segment_ids}).all()
    if compacted := [row.id for row in gone if row.compacted]:
        connection.execute(_FORGET_IDS, {"these": compacted})
    discard(connection, [row.file for row in gone if row.file is not None])


def discard(connection: Connection, locations: Collection[str]) -> None:
    """Mark published files as garbage; vacuum removes them later."""
    if locations:
        connection.execute(_DISCARD, [{"gone": location} for location in sorted(locations)])


def discard_unpublished(connection: Connection, staged: Iterable[Staged]) -> None:
    """Mark staged files as garbage unless they are published; vacuum removes them later."""
    locations = sorted(segment.location for segment in staged if segment.location)
    if locations:
        statement = noting(dialect.of(connection), "garbage")
        connection.execute(statement, [{"location": location} for location in locations])


def _source(row: Row[Any]) -> SegmentRef:
    # A text among the numbers, which SQLite allows, raises `TypeError`.
    sum((row.schema_version, row.loaded_at))
    chunks = unpack_chunks(row.chunks)
    firsts = accumulate((chunk.rows for chunk in chunks[:-1]), initial=0)
    return SegmentRef(
        segment_id=row.id,
        first_id=first_id(row.id),
        location=row.file,
        data=row.data,
        schema_version=row.schema_version,
        chunks=tuple(zip(firsts, chunks, strict=True)) if chunks else (),
        loaded_at=row.loaded_at,
        compacted=bool(row.compacted),
    )
