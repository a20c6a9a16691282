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

_MESSAGES, _SIZE = 50_000, 100
_PATIENCE_SECONDS = 300.0


class Handlers(Workload):
    """Messages wait; from the start of the consumer until all are acknowledged."""

    name = "handlers"
    title = "a handler of single messages that does nothing, batches of 100, start included"

    def peers(self) -> Sequence[Any]:
        """With the pools."""
        return pool_peers()

    def cases(self, scale: Scale) -> Sequence[str]:
        """By the number of messages."""
        return [f"{scale.of(_MESSAGES, 5_000):,} messages of {_SIZE} bytes"]

    def measure(self, peer: Peer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """Fill a queue, and empty it."""
        messages = scale.of(_MESSAGES, 5_000)
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

        peer.serve(queue, handler, is_done)
        seconds = time.perf_counter() - began
        if len(handled) != messages:
            raise RuntimeError(f"{len(handled):,} of {messages:,} messages were handled")
        return [Result(measure="handle and acknowledge", rate=messages / seconds)]
