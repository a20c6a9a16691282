"""The leader by a lease in the catalog, which it keeps renewing.

Two clocks count. The catalog's decides when a lease ends, so instances whose clocks differ agree.
This process's stopwatch measures the time since the last renewal, so a leader that cannot reach the
catalog resigns before another one can take over.
"""

from __future__ import annotations

import logging
import time

from sqlalchemy import Connection

from queue_core.catalog import dialect, format
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import leases
from queue_core.catalog.records import task_runs
from queue_core.errors import IgnisError, NotLeading
from queue_core.support.loop import Loop
from queue_core.support.outage_log import OutageLog
from queue_core.values.names import of_process

#: Seconds for which a lease lasts, and between two renewals.
TTL_SECONDS = 30.0
RENEW_SECONDS = 10.0
#: The role of the leader, which alone sweeps.
ROLE = "sweeper"

_log = logging.getLogger(__name__)


class LeaseLeader:
    """A candidate for the lease of the leader in a catalog."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        holder: str | None = None,
        ttl: float = TTL_SECONDS,
        every: float = RENEW_SECONDS,
    ) -> None:
        self.holder = holder or of_process()
        self._catalog = catalog
        self._ttl = ttl
        self._every = every
        #: The term for which the lease is held, and until when by the stopwatch; one value, so that
        #: threads see both or neither.
        self._held: tuple[int, float] | None = None
        #: The last term, 0 for none, and from when on it leads, by the stopwatch.
        self._term, self._from = 0, 0.0
        self._loop: Loop | None = None
        self._outage = OutageLog(_log, {"holder": self.holder})

    def start(self) -> None:
        """Try to take the lease now, and keep trying or renewing it in a thread."""
        if self._loop is None:
            self._renew()
            loop = Loop(f"lease of the {ROLE}", self._renew, every=self._every)
            loop.start()
            self._loop = loop

    def stop(self) -> None:
        """End the lease."""
        if self._loop is None:
            return
        self._loop.stop()
        self._loop, self._held = None, None
        try:
            self._catalog.write(lambda c: leases.release(c, ROLE, self.holder))
        except IgnisError as error:
            _log.warning("the lease of the %s ends by itself: %s", ROLE, error)

    def leads(self) -> bool:
        """Return whether the lease is held and was renewed in time."""
        held = self._held
        return held is not None and time.monotonic() < held[1]

    def guard(self, connection: Connection) -> None:
        """Lock the lease until the transaction ends; raises `NotLeading`."""
        held = self._held
        if held is None or not leases.holds(connection, ROLE, self.holder, held[0]):
            raise NotLeading(f"{self.holder} is not the {ROLE}: another instance is, or none")

    def grant(self) -> tuple[str, int]:
        """Return the holder and the term of the lease, as last renewed; 0: it does not lead."""
        return self.holder, (self._held or (0, 0.0))[0]

    def _renew(self) -> None:
        def hold(connection: Connection) -> int | None:
            # What only the leader does may not work in a newer format.
            format.read(connection, dialect.hidden(self._catalog.url))
            return leases.hold(connection, ROLE, self.holder, self._ttl)

        # From before the call, since the catalog counts from a later time.
        now = time.monotonic()
        try:
            term = self._catalog.write(hold)
        except IgnisError as error:
            self._outage.failed(f"the lease of the {ROLE} could not be renewed: {error}")
            return
        self._outage.over(f"the lease of the {ROLE} can be renewed again")
        if self._loop is not None and (term or 0) != self._term:
            # After an outage, living consumers may look dead until they send a heartbeat: wait.
            self._from = now + 2 * self._every
        self._term = term or 0
        leads = term is not None and now >= self._from
        former, self._held = self._held, (self._term, now + self._ttl) if leads else None
        if (former is None) == leads:
            text = f"{self.holder} is {'the' if leads else 'no longer the'} {ROLE}"
            _log.info(text, extra={"holder": self.holder, "leads": leads})


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

    def leads(self) -> bool:
        """Return true: only a transaction finds out."""
        return True

    def guard(self, connection: Connection) -> None:
        """Raise `NotLeading` if the leader has lost its lease, or the run."""
        if self._grant is not None and not leases.holds(connection, ROLE, *self._grant):
            raise NotLeading(f"{self._grant[0]} is not the {ROLE} any more")
        if self._grant is None and not task_runs.is_open(connection, self._run_id):
            raise NotLeading(f"run {self._run_id} of the {ROLE} was taken over")
