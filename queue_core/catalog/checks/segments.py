"""Segments: each belongs to a queue, is in one place, and its bytes are there (I10 to I15, I31)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, literal, or_, select

from queue_core.catalog import seals
from queue_core.catalog.checks.finding import Finding, Remedy
from queue_core.catalog.checks.rules import ALTERED, Scope, can, find_rows, is_altered, of_row
from queue_core.catalog.slices import quarantined
from queue_core.catalog.slices.files import FOUND
from queue_core.catalog.slices.quarantined import find_fault
from queue_core.catalog.tables import files, id_map, queues, schemas, segments, slices
from queue_core.segments.format import unpack_chunks
from queue_core.values.ipc import unpack
from queue_core.values.model import Chunk, State

_HEAD = (segments.c.id, segments.c.queue_id, segments.c.loaded_at)
_LARGEST = 2**20
#: Quarantined messages are known to be damaged, and other segments are leftovers.
_NAMED = exists().where(slices.c.segment_id == segments.c.id)
_DAMAGED = slices.c.state == int(State.DAMAGED)
_TRUSTED = _NAMED.where(~_DAMAGED) | ((segments.c.log_rows > 0) & ~_NAMED.where(_DAMAGED))


def check_owners(scope: Scope) -> Iterator[Finding]:
    """Check that each segment has a queue, a schema, and one place for its bytes."""
    filed, inlined = segments.c.file.is_not(None), segments.c.data.is_not(None)
    problems = {
        "I10": (
            "its queue does not exist, or never had its schema",
            or_(queues.c.id.is_(None), schemas.c.version.is_(None)),
        ),
        "I11": (
            "it is in a file and in the catalog, or in neither, or its size is impossible",
            or_(
                filed == inlined,
                segments.c.rows < 0,
                segments.c.rows > _LARGEST,
                segments.c.bytes < 0,
            ),
        ),
    }
    joined = segments.outerjoin(queues, queues.c.id == segments.c.queue_id).outerjoin(
        schemas,
        and_(
            schemas.c.queue_id == segments.c.queue_id,
            schemas.c.version == segments.c.schema_version,
        ),
    )
    query = select(*_HEAD).select_from(joined).where(_TRUSTED)
    yield from find_rows(scope, segments, query, problems)


def check_bytes(scope: Scope) -> Iterator[Finding]:
    """Check seals and chunks of all segments, and that their files are there and long enough."""
    rest = (segments.c.seal - seals.numbers_in_sql(segments)).label("rest")
    data: ColumnElement[Any] = segments.c.data if scope.deep else literal(None).label("data")
    columns = (segments.c.file, segments.c.rows, segments.c.chunks, rest, data)
    query = select(*_HEAD, *columns).where(_TRUSTED)
    number, of = scope.share
    query = query if of == 1 else query.where(segments.c.id % of == number)
    rows = scope.connection.execute(query.execution_options(yield_per=10_000))
    # Listed after the catalog's state is fixed: the files of all of its segments are there by then.
    sizes = scope.storage.sizes()
    for row in rows:
        if row.rest != seals.digest([row.file, row.chunks]):
            yield of_row(segments, row, "I1", ALTERED)
        if row.file is None and not scope.deep:
            # Its chunks are sealed, and there is nothing else to check.
            continue
        chunks = _chunks(row)
        if chunks is None:
            yield of_row(segments, row, "I11", "its chunks do not cover its rows")
            continue
        if row.file is not None:
            needed = max((chunk.offset + chunk.length for chunk in chunks), default=0)
            size = sizes.get(row.file)
            if size is None or size < needed:
                problem = f"{row.file} is missing"
                if size is not None:
                    problem = f"{row.file} has {size} bytes of {needed}"
                yield of_row(segments, row, "I14", problem)
                continue
        if scope.deep and (row.file is not None or row.data is not None):
            wrong = find_fault(scope.storage, row.id, row.file, row.data, chunks)
            if wrong is not None:
                yield of_row(segments, row, "I15", wrong)


def check_quarantine(scope: Scope) -> Iterator[Finding]:
    """Find the segments of quarantined messages, and what is wrong with them now."""
    for one in quarantined.find(scope.connection):
        fault = quarantined.fault_of(scope.connection, scope.storage, one.segment_id)
        told = f"{one.messages:,} messages are quarantined"
        if fault is None:
            told += f", and {one.name} is in order again: run `ignis repair {one.queue}`"
        else:
            told += f": {fault}; {quarantined.remedy(one)}"
        yield Finding(
            invariant="I31",
            table=segments.name,
            key=(one.segment_id,),
            queue_id=one.queue_id,
            problem=told,
        )


def check_ids(scope: Scope) -> Iterator[Finding]:
    """Check the maps from message ids to the rows of compacted segments."""
    for row in scope.connection.execute(
        select(id_map, segments.c.loaded_at, segments.c.queue_id.label("owner"), queues.c.root_id)
        .outerjoin(segments, segments.c.id == id_map.c.segment_id)
        .outerjoin(queues, queues.c.id == id_map.c.queue_id)
        .where(or_(segments.c.id.is_(None), _TRUSTED))
    ):
        wrong = is_altered(id_map, row._asdict())
        if row.owner is None or row.owner not in (abs(row.queue_id), row.root_id):
            yield of_row(id_map, row, "I12", "there is no such segment in its queue", Remedy.REMOVE)
        elif wrong or not can(lambda data: unpack(data).column(0)[0], row.arrow):
            yield of_row(
                id_map, row, "I1" if wrong else "I12", "its map of ids is not what was written"
            )


def check_states(scope: Scope) -> Iterator[Finding]:
    """Check that the catalog says of each file whether a segment is in it."""
    live = and_(files.c.location == segments.c.file, files.c.state == "live")
    lost = select(
        segments.c.queue_id, segments.c.file.label("location"), segments.c.loaded_at
    ).where(segments.c.file.is_not(None), ~exists().where(live))
    for row in scope.connection.execute(lost):
        problem = "a segment is in the file, and it is not live: vacuum may remove it"
        yield of_row(files, row, "I13", problem, Remedy.RESTATE)
    known = ("live", "garbage", "condemned", FOUND)
    named = exists().where(segments.c.file == files.c.location)
    odd = select(files).where(
        or_(files.c.state.not_in(known), and_(files.c.state == "live", ~named))
    )
    for row in scope.connection.execute(odd):
        problem = f"no segment is in the file, and its state is {row.state!r}"
        yield of_row(files, row, "I13", problem, Remedy.RESTATE)


def _chunks(row: Any) -> tuple[Chunk, ...] | None:
    """Return the chunks of a segment; None if they cannot be read or do not cover its rows."""
    try:
        chunks = unpack_chunks(row.chunks)
    except Exception:  # noqa: BLE001 - damaged bytes may raise anything
        return None
    return chunks if sum(chunk.rows for chunk in chunks) == row.rows else None
