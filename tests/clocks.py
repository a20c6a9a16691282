"""Time that passes at once: the clock of a catalog jumps, or what waits for its time is due."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest
from sqlalchemy import Connection, select, update

from queue_core import Store
from queue_core.catalog import seals
from queue_core.catalog.holder_tables import consumers, leases, waiters
from queue_core.catalog.record_tables import schedule
from queue_core.catalog.tables import (
    SEALED,
    clocks,
    dedup,
    files,
    queues,
    segments,
    slices,
    token_buckets,
)
from queue_core.values.due import NEVER

DAY = 24 * 3600 * 1_000_000
#: Columns that hold times of the catalog.
_TIMES = {
    token_buckets: ("spent_until",),
    clocks: ("catalog_at", "jumped_at"),
    slices: ("loaded_at", "moved_at", "fired_at"),
    segments: ("loaded_at",),
    files: ("since",),
    queues: ("created_at",),
    consumers: ("heartbeat_at",),
    leases: ("ends_at",),
    schedule: ("begun_at", "due_at"),
    waiters: ("joined_at", "alive_until"),
    dedup: ("loaded_at",),
}


def jump(store: Store, days: float) -> None:
    """Let the clock be *days* further: all its times become older by as much."""

    def work(connection: Connection) -> None:
        for table, names in _TIMES.items():
            older = {name: table.c[name] - int(days * DAY) for name in names}
            if table not in SEALED:
                connection.execute(update(table).values(older))
                continue
            # The seal loses the old numbers, and gets the new ones; a wrong one stays wrong.
            numbers = seals.numbers_in_sql(table)
            connection.execute(update(table).values(older | {"seal": table.c.seal - numbers}))
            connection.execute(update(table).values(seal=table.c.seal + numbers))

    store.catalog.write(work)


def make_due(store: Store, seconds: float = 1e5) -> None:
    """Let *seconds* pass for messages that wait for their time; dead ones stay dead."""

    def work(connection: Connection) -> None:
        waiting = select(slices.c.id, slices.c.due_at).where(slices.c.due_at < NEVER)
        for row in connection.execute(waiting).all():
            due_at = row.due_at - int(seconds * 1e6)
            seals.change(connection, slices, slices.c.id == row.id, due_at=due_at)

    store.catalog.write(work)


def tasks_due(store: Store) -> None:
    """Let all side tasks that have a schedule be due."""
    store.catalog.write(lambda c: c.execute(update(schedule).values(due_at=0)))


class Stopwatch:
    """The monotonic clock of some modules, which goes on only when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now = 100.0
        for module in modules:
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
