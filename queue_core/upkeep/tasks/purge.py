"""Remove records that are no longer needed: purge, a part of the vacuum, and forget, by a person.

Reports and runs of tasks, jobs that have ended, failures of messages that are gone, and consumers
of processes that are gone are kept for a week. Keys of messages are kept for their de-duplication
window, and the schedule of a queue as long as the queue. Looks of machines at the clock are kept
for a month. Consumers of streaming queries, consumers with a chosen name, and publications stay
until somebody forgets them: they identify a query that returns, and only a person knows which
checkpoints will never start again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.identity import clock
from queue_core.catalog.records import (
    acts,
    dedup,
    failures,
    jobs,
    schedule,
    task_log,
    task_runs,
    traces,
)

#: Seconds for which reports, failures of messages that are gone, and idle consumers are kept.
KEPT_SECONDS = 7 * 24 * 3600.0


def purge(catalog: Catalog, older_than: float = KEPT_SECONDS) -> None:
    """Remove records that are older than *older_than* seconds."""
    clock.check(catalog)
    with catalog.read() as connection:
        # Outside of the writing transaction, because it looks at all slices of a queue.
        before = dialect.read_clock(connection) - int(older_than * 1e6)
        until = failures.forgettable(connection, before)
        keys = dedup.forgettable(connection)

    def forget_keys(connection: Connection, queue_id: int, loaded_until: int) -> bool:
        more = dedup.forget(connection, queue_id, loaded_until)
        clock.confirm(connection)
        return more

    for queue_id, loaded_until in keys.items():
        # There may be millions.
        while catalog.write(partial(forget_keys, queue_id=queue_id, loaded_until=loaded_until)):
            catalog.give_way()

    def work(connection: Connection) -> None:
        now = dialect.read_clock(connection)
        before = now - int(older_than * 1e6)
        # First, in the order of locks: a firing locks its consumer before all else.
        consumers.forget(connection, before)
        failures.forget(connection, until)
        traces.forget(connection, before)
        task_log.forget(connection, before)
        task_runs.forget(connection, before)
        jobs.forget(connection, before)
        acts.forget(connection)
        schedule.forget(connection)
        clock.forget(connection)
        clock.confirm(connection)

    catalog.write(work)


class _DryRun(Exception):
    """Rolls back what a dry run has removed."""


def forget(
    catalog: Catalog, names: Sequence[str], idle: float | None, *, dry_run: bool
) -> list[str]:
    """
    Remove consumers by name, and those that are idle; return the names of all that go.

    Changes: consumers that hold no messages, and records of last batches, are removed. Guard: a
    consumer that is alive or holds messages stays. Crash in between: nothing, because it is one
    transaction.
    """
    clock.check(catalog)
    gone: list[str] = []

    def work(connection: Connection) -> None:
        gone.clear()
        for name in names:
            consumers.check_dead(connection, name, consumers.DEAD_AFTER_SECONDS)
        gone.extend(consumers.forget_named(connection, names))
        if idle is not None:
            now = dialect.read_clock(connection)
            before = now - int(max(idle, consumers.DEAD_AFTER_SECONDS) * 1e6)
            gone.extend(consumers.forget_unused(connection, before))
            gone.extend(consumers.forget_batches(connection, now - int(idle * 1e6)))
        clock.confirm(connection)
        if dry_run:
            raise _DryRun
        acts.note(connection)

    with suppress(_DryRun):
        catalog.write(work)
    return gone
