"""Leaders: of all instances that work on a store, one at a time sweeps.

Elected by a lease in the catalog (`queue_core.upkeep.leader.lease`), or by ZooKeeper
(`queue_core.upkeep.leader.zookeeper`).

May import `catalog`, `values` and `support`. Must not run a side task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from queue_core.errors import BadOption
from queue_core.values.options import CLIENT_ID

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from queue_core.catalog.database import Catalog


class Leader(Protocol):
    """What a side task asks of an instance that may be the leader; safe for threads."""

    def leads(self) -> bool:
        """Return whether this instance is the leader, as far as it knows without asking."""

    def guard(self, connection: Connection) -> None:
        """
        Fence a transaction; raises `NotLeading` if this instance is not the leader any more.

        Call it first in the transaction.
        """


class Candidate(Leader, Protocol):
    """An instance that stands for election."""

    def start(self) -> None:
        """Stand for election until `stop`, if it does not yet; return without waiting for it."""

    def stop(self) -> None:
        """Resign; another instance can take over at once."""

    def grant(self) -> tuple[str, int] | None:
        """
        Return the holder and the term of the catalog's lease, for a deputy in another process.

        With a term that no lease has while this instance does not lead. None: ZooKeeper elects it.
        """


def candidate(
    catalog: Catalog,
    *,
    zookeeper: str | None = None,
    client_id: str = CLIENT_ID,
    partitions: Callable[[], Sequence[str]] = tuple,
) -> Candidate:
    """
    Return a candidate that is not started yet, for the catalog's lease or for ZooKeeper.

    *zookeeper*: ``host:port``, or several with commas between them; None: the lease. *client_id*:
    the group of instances that elect one leader. *partitions* returns the names of the queues that
    the leader assigns to members. Raises `BadOption` if an argument is malformed, or the ZooKeeper
    client is not installed.
    """
    if zookeeper is None:
        from queue_core.upkeep.leader.lease import LeaseLeader

        return LeaseLeader(catalog)
    try:
        from queue_core.upkeep.leader.zookeeper import ZooKeeperLeader
    except ModuleNotFoundError as error:
        raise BadOption(
            f"zookeeper={zookeeper!r} needs a client: pip install 'ignis-queue[zookeeper]'"
        ) from error
    return ZooKeeperLeader(zookeeper, client_id=client_id, partitions=partitions)
