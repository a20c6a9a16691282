"""Leaders: of the instances that work on a store, one at a time does what only one should do.

By a lease in the catalog (`queue_core.leader.lease`), or by ZooKeeper
(`queue_core.leader.zookeeper`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Leader(Protocol):
    """An instance that may be the leader; safe for threads."""

    def start(self) -> None:
        """Stand for election, until `stop`; returns without waiting to be elected."""

    def stop(self) -> None:
        """Give up; another instance can take over at once."""

    def leads(self) -> bool:
        """Whether this instance is the leader, as far as it knows; asks nobody."""

    def guard(self, connection: Connection) -> None:
        """
        Make a transaction one of the leader's; raises `NotLeading` where it no longer is.

        Call it first in the transaction.
        """
