"""Forgetting: what was noted about messages and tasks is kept for a week.

Of failures, those of messages that are still there are kept for longer; keys of messages, for as
long as one wants to know them again.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog import dedup, dialect, failures, schedule, task_log
from queue_core.catalog.database import Catalog

#: Seconds for which reports of tasks, and failures of messages that are gone, are kept.
KEPT_SECONDS = 7 * 24 * 3600.0


def forget(catalog: Catalog, older_than: float = KEPT_SECONDS) -> None:
    """Remove notes that are older than so many seconds."""

    def work(connection: Connection) -> None:
        now = dialect.read_clock(connection)
        before = now - int(older_than * 1e6)
        dedup.forget(connection)
        failures.forget(connection, before)
        task_log.forget(connection, before)
        schedule.forget(connection)

    catalog.write(work)
