"""Queues, and what is recorded about them: publications, failures, reports, keys (I26, I27)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Table, select

from queue_core.catalog import seals
from queue_core.catalog.schedule import STORE
from queue_core.catalog.tables import (
    dedup,
    failures,
    publications,
    queues,
    schemas,
    task_log,
)
from queue_core.fsck.finding import Finding
from queue_core.fsck.scope import Scope
from queue_core.names import check_queue
from queue_core.schema import deserialize
from queue_core.segments.ipc import unpack
from queue_core.settings import QueueSettings


def check_queues(scope: Scope) -> Iterator[Finding]:
    """Check the rows of queues, and of their schemas."""
    written = {
        (row.queue_id, row.version): row for row in scope.connection.execute(select(schemas))
    }
    known = set()
    for row in scope.connection.execute(select(queues)):
        known.add(row.id)
        if _is_altered(queues, row):
            yield _of("I1", queues, (row.id,), row.id, "a value of the row is not what was written")
        elif not _works(_read_queue, row):
            yield _of("I27", queues, (row.id,), row.id, "its name or its settings cannot be read")
        versions = {version for queue_id, version in written if queue_id == row.id}
        if versions != set(range(1, row.schema_version + 1)):
            text = f"it has the schemas {sorted(versions)}, and needs that of {row.schema_version}"
            yield _of("I27", queues, (row.id,), row.id, text)
    for key, row in written.items():
        if _is_altered(schemas, row):
            yield _of(
                "I1", schemas, key, row.queue_id, "a value of the row is not what was written"
            )
        elif row.queue_id not in known or not _works(_read_schema, row):
            yield _of("I27", schemas, key, row.queue_id, "it has no queue, or cannot be read")


def check_records(scope: Scope) -> Iterator[Finding]:
    """Check what is recorded about queues."""
    known = set(scope.connection.scalars(select(queues.c.id)))
    readers: dict[Table, Callable[[Any], object]] = {
        publications: _read_content,
        failures: _read_table,
        task_log: _read_table,
        dedup: _read_table,
    }
    for table, read in readers.items():
        keys = [column.name for column in table.primary_key]
        query = select(table).execution_options(yield_per=1_000)
        for row in scope.connection.execute(query):
            key = tuple(getattr(row, name) for name in keys)
            owners = known | {STORE} if table is task_log else known
            since = row.published_at if table is publications else None
            if _is_altered(table, row):
                text = "a value of the row is not what was written"
                yield _of("I1", table, key, row.queue_id, text, since)
            elif row.queue_id not in owners or not _works(read, row):
                yield _of("I26", table, key, row.queue_id, "it has no queue, or cannot be read")


def _is_altered(table: Table, row: Any) -> bool:
    return row.seal is not None and row.seal != seals.seal(table, row._asdict())


def _read_queue(row: Any) -> object:
    return check_queue(row.name), QueueSettings.from_json(row.settings)


def _read_schema(row: Any) -> object:
    return deserialize(row.arrow)


def _read_content(row: Any) -> object:
    return json.loads(row.content or "{}")


def _read_table(row: Any) -> object:
    return unpack(row.arrow)


def _works(read: Callable[[Any], object], row: Any) -> bool:
    try:
        read(row)
    except Exception:  # noqa: BLE001 - damaged values may raise anything
        return False
    return True


def _of(
    invariant: str,
    table: Table,
    key: tuple[int | str, ...],
    queue_id: int,
    problem: str,
    since: int | None = None,
) -> Finding:
    return Finding(
        invariant=invariant,
        table=table.name,
        key=key,
        queue_id=queue_id,
        problem=problem,
        since=since,
    )
