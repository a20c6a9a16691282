"""Queues and their records: publications, failures, reports, jobs (I26, I27)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Table, select

from queue_core.catalog.checks.finding import Finding, Remedy
from queue_core.catalog.checks.rules import ALTERED, Scope, can, is_altered, of_row
from queue_core.catalog.record_tables import acts, failures, jobs, publications, task_log, traces
from queue_core.catalog.records.schedule import STORE
from queue_core.catalog.tables import queues, schemas, shared_limits
from queue_core.values.ipc import unpack
from queue_core.values.limits import by_name
from queue_core.values.names import check_queue
from queue_core.values.schema import deserialize
from queue_core.values.settings import QueueSettings


def check_queues(scope: Scope) -> Iterator[Finding]:
    """Check the rows of queues, and of their schemas."""
    written = {
        (row.queue_id, row.version): row for row in scope.connection.execute(select(schemas))
    }
    known = set()
    for row in scope.connection.execute(select(queues)):
        known.add(row.id)
        if is_altered(queues, row._asdict()):
            yield of_row(queues, row, "I1", ALTERED)
        elif not can(_read_queue, row):
            yield of_row(queues, row, "I27", "its name or its settings cannot be read")
        owner = row.root_id or row.id
        versions = {version for queue_id, version in written if queue_id == owner}
        if versions != set(range(1, row.schema_version + 1)):
            text = f"it has the schemas {sorted(versions)}, and needs that of {row.schema_version}"
            yield of_row(queues, row, "I27", text)
    for row in written.values():
        if is_altered(schemas, row._asdict()):
            yield of_row(schemas, row, "I1", ALTERED)
        elif row.queue_id not in known or not can(deserialize, row.arrow):
            yield of_row(schemas, row, "I27", "it has no queue, or cannot be read")


def check_shared_limits(scope: Scope) -> Iterator[Finding]:
    """Check that the queues that share a limit are those whose settings have it."""
    shared = {
        (row.queue_id, row.name): row for row in scope.connection.execute(select(shared_limits))
    }
    for row in scope.connection.execute(select(queues).where(queues.c.snapshot_of == 0)):
        if not can(_read_queue, row):
            # Its limits are not known.
            shared = {key: each for key, each in shared.items() if key[0] != row.id}
            continue
        for name, limit in by_name(QueueSettings.from_json(row.settings).limits).items():
            if shared.pop((row.id, name), None) is None:
                yield of_row(queues, row, "I27", f"table shared_limits lacks its {limit}")
    for row in shared.values():
        text = f"its queue has no limit of the name {row.name!r}"
        yield of_row(shared_limits, row, "I27", text, Remedy.REMOVE)


def check_records(scope: Scope) -> Iterator[Finding]:
    """Check the records of queues."""
    known = set(scope.connection.scalars(select(queues.c.id)))
    readers: dict[Table, Callable[[Any], object]] = {
        publications: lambda row: json.loads(row.content or "{}"),
        failures: lambda row: unpack(row.arrow),
        traces: lambda row: str(row.trace),
        task_log: lambda row: unpack(row.arrow),
        jobs: lambda row: (json.loads(row.pointers), float(row.rate or 1), row.moved + row.total),
    }
    for row in scope.connection.execute(select(acts).execution_options(yield_per=1_000)):
        if is_altered(acts, row._asdict()):
            yield of_row(acts, row, "I1", ALTERED)
        elif not can(json.loads, row.chosen):
            yield of_row(acts, row, "I26", "it cannot be read")
    for table, read in readers.items():
        query = select(table).execution_options(yield_per=1_000)
        for row in scope.connection.execute(query):
            owners = known | {STORE} if table in (task_log, publications) else known
            if is_altered(table, row._asdict()):
                yield of_row(table, row, "I1", ALTERED)
            elif row.queue_id not in owners or not can(read, row):
                yield of_row(table, row, "I26", "it has no queue, or cannot be read")
            elif table is task_log and row.id < 1:
                yield of_row(table, row, "I26", "its number is below 1, where no reader begins")


def _read_queue(row: Any) -> object:
    name = row.name.partition("@")[0] if row.snapshot_of else row.name
    return check_queue(name), QueueSettings.from_json(row.settings)
