"""Settle within the caller's transaction: its rows and the outcomes are committed together.

Changes: those of a settlement. Guard: as for a settlement. If a message is no longer held, it may
have been handled elsewhere, and the caller's rows must not be committed: the call is refused. Crash
or rollback: nothing was settled.
"""

from __future__ import annotations

from queue_core.catalog.callers import CallersCatalog
from queue_core.errors import Conflict
from queue_core.values.model import Holder, QueueInfo
from queue_core.values.outcomes import Settlement
from queue_core.values.retry import Retry
from queue_core.verbs.settle import settle as settle_held


class NotHeld(Conflict):
    """Messages are not held any more."""


def settle(
    catalog: CallersCatalog,
    queue: QueueInfo,
    settlement: Settlement,
    holder: Holder,
    retry: Retry | None = None,
) -> int:
    """Settle all messages of a settlement; raises as `verbs.settle` does, and `Conflict`."""
    settled = settle_held(catalog, [queue], settlement, holder, retry=retry)
    given = len(settlement.deleted | settlement.sidelined | settlement.reloaded)
    if settled < given:
        raise NotHeld(
            f"queue {queue.name!r}: {given - settled} of {given} messages are not held any more, "
            "since they were settled, swept or never fired, or are of another consumer; nothing "
            "was settled: roll back your transaction, so that no message counts twice"
        )
    return settled
