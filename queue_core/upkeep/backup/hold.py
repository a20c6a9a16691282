"""A hold on the segments of a store: while a backup copies them, vacuum removes no garbage.

It is a lease that a thread renews, so it ends by itself when its process dies.
"""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager, suppress

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import leases
from queue_core.catalog.holders.leases import LONGEST_LEASE_SECONDS
from queue_core.errors import CatalogUnavailable, IgnisError
from queue_core.support.loop import Loop

#: Seconds for which a hold lasts without being renewed, and between two renewals.
HELD_SECONDS = LONGEST_LEASE_SECONDS
RENEWED_SECONDS = 20.0


class Hold(AbstractContextManager["Hold"]):
    """Keeps every segment that a slice names, now or later, until the block ends."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._role = f"{leases.BACKUP}{uuid.uuid4().hex}"
        self._loop = Loop("hold", self._renew, every=RENEWED_SECONDS)

    def __enter__(self) -> Hold:
        self._catalog.write(self._take)
        self._loop.start()
        return self

    def check(self) -> None:
        """Raise `CatalogUnavailable` if the hold has ended meanwhile."""
        if not self._catalog.write(self._is_held):
            raise CatalogUnavailable(
                f"{self._catalog!r} could not be reached for {HELD_SECONDS:.0f} seconds while its "
                "backup was written, so segments may have been removed meanwhile; the backup is "
                "not complete: begin again"
            )

    def __exit__(self, *_: object) -> None:
        self._loop.stop()
        # If this fails, the hold ends by itself.
        with suppress(IgnisError):
            self._catalog.write(lambda connection: leases.forget(connection, self._role))

    def _take(self, connection: Connection) -> None:
        leases.hold(connection, self._role, self._role, HELD_SECONDS)

    def _is_held(self, connection: Connection) -> bool:
        return leases.holds(connection, self._role, self._role, 1)

    def _renew(self) -> None:
        def renew(connection: Connection) -> None:
            # A hold that has ended stays ended, and `check` reports it.
            if self._is_held(connection):
                self._take(connection)

        with suppress(IgnisError):
            self._catalog.write(renew)
