"""A handler of single messages that does nothing, called as each peer advises."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.contenders import pool_peers
from benchmarks.peers.peer import Peer
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers
from benchmarks.peers.workload import Scale, Workload
from benchmarks.peers.workloads.passing import bodies

_SIZE = 100
#: Messages of the full run, and the least of any run, by the size of the batch.
_CASES = {100: (50_000, 5_000), 1: (2_000, 200)}
_PATIENCE_SECONDS = 300.0


class Handlers(Workload):
    """Messages wait; from the start of the consumer until all are acknowledged."""

    name = "handlers"
    title = "a handler of single messages that does nothing, start included"

    def peers(self) -> Sequence[Any]:
        """With the pools."""
        return pool_peers()

    def cases(self, scale: Scale) -> Sequence[str]:
        """By the size of the batch that is taken and acknowledged."""
        return [
            f"{scale.of(full, least):,} messages of {_SIZE} bytes, batches of {batch}"
            for batch, (full, least) in _CASES.items()
        ]

    def measure(self, peer: Peer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """Fill a queue, and empty it."""
        batch = int(case.rpartition(" ")[2])
        messages = scale.of(*_CASES[batch])
        client = peer.connect()
        for first in range(0, messages, 1000):
            client.produce(bodies(first, min(1000, messages - first), _SIZE))
        queue = client.queue
        client.close()
        handled: list[int] = []
        began = time.perf_counter()
        end = began + _PATIENCE_SECONDS

        def handler(body: bytes) -> bool:
            handled.append(len(body))
            return True

        def is_done() -> bool:
            return len(handled) >= messages or time.perf_counter() > end

        peer.serve(queue, handler, is_done, batch)
        seconds = time.perf_counter() - began
        if len(handled) != messages:
            raise RuntimeError(f"{len(handled):,} of {messages:,} messages were handled")
        return [Result(measure="handle and acknowledge", rate=messages / seconds)]
