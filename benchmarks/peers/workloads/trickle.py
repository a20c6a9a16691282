"""The stream with which DuckLake measures small writes: 30,000 batches of 10 rows."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.peer import Peer
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers
from benchmarks.peers.workload import Scale, Workload
from benchmarks.peers.workloads.passing import both_ways

_BATCHES, _ROWS, _SIZE = 30_000, 10, 100


class Trickle(Workload):
    """Small batches in, large ones out."""

    name = "trickle"
    title = "many small batches, each durable, then read in batches of 1,000; 100 bytes, one client"

    def cases(self, scale: Scale) -> Sequence[str]:
        """One; a slow peer writes as many as the time of a measurement allows."""
        return [f"up to {scale.of(_BATCHES):,} batches of {_ROWS}"]

    def measure(self, peer: Peer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """Write all, read all."""
        return both_ways(
            peer,
            messages=scale.of(_BATCHES) * _ROWS,
            size=_SIZE,
            batch=_ROWS,
            most_seconds=5 * scale.seconds,
            out=1000,
        )
