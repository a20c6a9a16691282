"""Signs of life of processes, and times in the future that a clock has left behind.

A clock that was ahead and is set back leaves times in the future. A process that died meanwhile
would count as alive until the clock gets there. Waiters, interests and tasks of the schedule ignore
such a time. It is safer to correct heartbeats and leases, because they protect messages and files:
the process then has its usual time to give another sign of life.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, update

from queue_core.catalog import dialect
from queue_core.catalog.tables import consumers, leases

#: Seconds by which the clocks of two databases, such as a primary and its standby, may differ.
AHEAD_SECONDS = 5.0
#: The most seconds for which a lease is taken or renewed.
LONGEST_LEASE_SECONDS = 300.0


def is_ahead(time: ColumnElement[Any], seconds: float = 0.0) -> ColumnElement[bool]:
    """Whether a time is further in the future than *seconds*, and than clocks may differ."""
    return time > dialect.now() + int((seconds + AHEAD_SECONDS) * 1e6)


def correct(connection: Connection) -> None:
    """Set heartbeats that lie in the future to the present, and limit leases to their longest."""
    longest = dialect.now() + int(LONGEST_LEASE_SECONDS * 1e6)
    late = is_ahead(leases.c.ends_at, LONGEST_LEASE_SECONDS)
    connection.execute(update(leases).where(late).values(ends_at=longest))
    late = is_ahead(consumers.c.heartbeat_at)
    connection.execute(update(consumers).where(late).values(heartbeat_at=dialect.now()))
