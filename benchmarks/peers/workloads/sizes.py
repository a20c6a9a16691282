"""Messages of 1 KiB to 10 MB in plain Python: produce, then read and acknowledge."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.peer import Peer
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers
from benchmarks.peers.workload import Scale, Workload
from benchmarks.peers.workloads.passing import both_ways

#: Bytes, messages of the full run, and messages of a batch.
_CASES = {
    "1 KiB, batches of 1,000": (1024, 50_000, 1000),
    "100 kB, batches of 10": (100_000, 2_000, 10),
    "10 MB, one by one": (10_000_000, 20, 1),
}


class Sizes(Workload):
    """One producer, then one consumer."""

    name = "sizes"
    title = "larger messages: produce, then read and acknowledge; one client"

    def cases(self, scale: Scale) -> Sequence[str]:
        """By the size of a message."""
        return list(_CASES)

    def measure(self, peer: Peer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """Both ways of a queue."""
        size, messages, batch = _CASES[case]
        return both_ways(
            peer,
            messages=scale.of(messages, 5 * batch),
            size=size,
            batch=batch,
            most_seconds=scale.seconds,
        )
