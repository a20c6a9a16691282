"""The deputy of a leader: it does the leader's tasks in another process, as on an executor."""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog.holders import leases
from queue_core.catalog.records import task_runs
from queue_core.errors import NotLeading
from queue_core.upkeep.leader.lease import ROLE


class Deputy:
    """
    Sweeps for a leader, while that leads.

    Args:
        grant: The holder and the term of the leader's lease; None: ZooKeeper has elected it.
        run_id: The run that the leader has claimed. With ZooKeeper, whose elections the catalog
            does not know, the deputy is refused once another leader has taken over the run.
    """

    def __init__(self, grant: tuple[str, int] | None, run_id: int) -> None:
        self._grant = grant
        self._run_id = run_id

    def start(self) -> None:
        """Do nothing: a deputy does not stand for election."""

    def stop(self) -> None:
        """Do nothing: the leader goes on."""

    def leads(self) -> bool:
        """Return true: only a transaction finds out."""
        return True

    def guard(self, connection: Connection) -> None:
        """Raise `NotLeading` if the leader has lost its lease, or the run."""
        if self._grant is not None and not leases.holds(connection, ROLE, *self._grant):
            raise NotLeading(f"{self._grant[0]} is not the {ROLE} any more")
        if self._grant is None and not task_runs.is_open(connection, self._run_id):
            raise NotLeading(f"run {self._run_id} of the {ROLE} was taken over")

    def grant(self) -> tuple[str, int] | None:
        """Return what this deputy was granted."""
        return self._grant
