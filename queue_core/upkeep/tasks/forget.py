"""Forget: remove what the catalog keeps of queries and consumers that will not come back.

No task does this: only a person knows which checkpoints will never start again.

Changes: consumers that hold no messages, and records of last batches, are removed. Guard: a
consumer that is alive or holds messages stays. Crash in between: nothing, because it is one
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers, idle_consumers
from queue_core.catalog.identity import clock


class _DryRun(Exception):
    """Rolls back what a dry run has removed."""


def forget(
    catalog: Catalog, names: Sequence[str], idle: float | None, *, dry_run: bool
) -> list[str]:
    """Remove consumers by name, and those that are idle; return the names of all that go."""
    clock.check(catalog)
    gone: list[str] = []

    def work(connection: Connection) -> None:
        gone.clear()
        for name in names:
            consumers.check_dead(connection, name, consumers.DEAD_AFTER_SECONDS)
        gone.extend(idle_consumers.forget_named(connection, names))
        if idle is not None:
            now = dialect.read_clock(connection)
            before = now - int(max(idle, consumers.DEAD_AFTER_SECONDS) * 1e6)
            gone.extend(idle_consumers.forget_unused(connection, before))
            gone.extend(idle_consumers.forget_batches(connection, now - int(idle * 1e6)))
        clock.confirm(connection)
        if dry_run:
            raise _DryRun

    with suppress(_DryRun):
        catalog.write(work)
    return gone
