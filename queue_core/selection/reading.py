"""How to read the messages of a firing, found in the transaction that fires them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from queue_core.catalog.slices import read_plans
from queue_core.errors import DamagedCatalog
from queue_core.values.model import QueueInfo, ReadPlan
from queue_core.values.plan import Taken

#: A plan of more slices is made after the transaction, since other firings wait for its end.
MOST_SLICES = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """Asks a firing for the plan to read its messages, which saves a transaction."""

    #: URI of the storage.
    storage: str
    #: The queues, as their messages are read.
    queues: tuple[QueueInfo, ...]

    def plan(
        self, connection: Connection, taken: Sequence[Taken], fired_at: int
    ) -> ReadPlan | None:
        """Return how to read rows of slices that are fired at this time; None: ask the ticket."""
        if len(taken) > MOST_SLICES:
            return None
        fired = [(replace(piece, fired_at=fired_at), rows) for piece, rows in taken]
        # Damage must not keep the messages from being fired: it would stop the queue.
        with suppress(DamagedCatalog):
            return read_plans.build(connection, self.queues, fired, self.storage)
        return None
