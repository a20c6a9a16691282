"""Produce, consume and acknowledge with one client, of which 1 % fails, in batches."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.peer import Peer
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers
from benchmarks.peers.workload import Scale, Workload
from benchmarks.peers.workloads.passing import both_ways

#: Messages of the full run, by the size of the batch.
_MESSAGES = {"1": 2_000, "100": 100_000, "1,000": 300_000}
_SIZE = 100


class Tasks(Workload):
    """One producer, then one consumer."""

    name = "tasks"
    title = "produce, then consume and acknowledge with 1 % failures; 100 bytes, one client"

    def cases(self, scale: Scale) -> Sequence[str]:
        """By the size of the batch."""
        return [f"batches of {batch}" for batch in _MESSAGES]

    def measure(self, peer: Peer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """Both ways of a queue."""
        named = case.removeprefix("batches of ")
        batch = int(named.replace(",", ""))
        messages = scale.of(_MESSAGES[named], 10 * batch)
        return both_ways(
            peer,
            messages=messages,
            size=_SIZE,
            batch=batch,
            most_seconds=scale.seconds,
            fails=True,
        )
