"""One file for each peer. `task_peers` are those of plain Python, `spark_peers` those of Spark."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.peers.peer import Peer

if TYPE_CHECKING:
    from benchmarks.peers.spark import SparkPeer

#: Module and class of each peer of plain Python, in the order of the table.
_TASK_PEERS = (
    ("ignis", "IgnisSqlite"),
    ("ignis", "IgnisPostgres"),
    ("bare_commits", "BareCommits"),
    ("skip_locked", "SkipLocked"),
    ("pgmq", "Pgmq"),
    ("redis", "RedisEverySecond"),
    ("redis", "RedisAlways"),
    ("nats", "NatsJetStream"),
    ("rabbitmq", "RabbitQuorum"),
)
_POOL_PEERS = (("ignis", "IgnisSqlitePool"), ("ignis", "IgnisPostgresPool"))
_SPARK_PEERS = (
    ("spark_bare", "Bare"),
    ("spark_bare", "BareSynced"),
    ("spark_ignis", "SparkIgnisSqlite"),
    ("spark_ignis", "SparkIgnisPostgres"),
    ("spark_kafka", "Kafka"),
)


def task_peers() -> list[Peer]:
    """Return all peers of plain Python, not started."""
    return _made(_TASK_PEERS)


def pool_peers() -> list[Peer]:
    """Return the pools of ignis, then all peers of plain Python that wait for messages."""
    return [*_made(_POOL_PEERS), *(peer for peer in task_peers() if peer.waits)]


def spark_peers() -> list[SparkPeer]:
    """Return all peers of Spark, not started."""
    return _made(_SPARK_PEERS)


def _made(peers: Iterable[tuple[str, str]]) -> list[Any]:
    return [
        getattr(import_module(f"benchmarks.peers.contenders.{module}"), name)()
        for module, name in peers
    ]
