"""Leaders: of the instances that work on a store, one at a time does what only one should do.

By a lease in the catalog (`queue_core.leader.lease`), or by ZooKeeper
(`queue_core.leader.zookeeper`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from queue_core.errors import BadOption

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from queue_core.catalog.database import Catalog

#: Under which instances meet in ZooKeeper unless told otherwise.
CLIENT_ID = "ignis"


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


def candidate(
    catalog: Catalog,
    *,
    zookeeper: str | None = None,
    client_id: str = CLIENT_ID,
    partitions: Callable[[], Sequence[str]] = tuple,
) -> Leader:
    """
    A candidate that is not started yet: for the catalog's lease, or at ZooKeeper's *zookeeper*.

    *zookeeper* is ``host:port``, or several with commas between; *client_id* names those that elect
    one among them, and *partitions* tells what a leader shares out, the names of queues. Raises
    `BadOption`.
    """
    if zookeeper is None:
        from queue_core.leader.lease import LeaseLeader

        return LeaseLeader(catalog)
    try:
        from queue_core.leader.zookeeper import ZooKeeperLeader
    except ModuleNotFoundError as error:
        raise BadOption(
            f"zookeeper={zookeeper!r} needs a client: pip install 'ignis-queue[zookeeper]'"
        ) from error
    return ZooKeeperLeader(zookeeper, client_id=client_id, partitions=partitions)
