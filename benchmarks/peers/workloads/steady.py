"""A steady 1,000 messages a second: the time from when each was due until its handler had it."""

from __future__ import annotations

import multiprocessing
import struct
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.contenders import pool_peers
from benchmarks.peers.figures import latencies
from benchmarks.peers.peer import Client, Peer
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers
from benchmarks.peers.workload import Scale, Workload

RATE, _SECONDS, _SIZE = 1000, 10, 100
#: The first messages find connections and processes that are not ready yet.
_WARM_SECONDS = 1
_PATIENCE_SECONDS = 60.0
DUE = struct.Struct("<d")


class Steady(Workload):
    """The producer is another process; a late one sends what is due as one batch."""

    name = "steady"
    title = "1,000 messages a second: from the time when a message is due to its handler"

    def peers(self) -> Sequence[Any]:
        """With the pools."""
        return pool_peers()

    def cases(self, scale: Scale) -> Sequence[str]:
        """By the time that it lasts."""
        return [f"{length(scale)} s"]

    def measure(self, peer: Peer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """All latencies but those of the first second."""
        client = peer.connect()
        queue = client.queue
        client.close()
        total = (_WARM_SECONDS + length(scale)) * RATE
        taken: list[float] = []
        context = multiprocessing.get_context("spawn")
        producer = context.Process(
            target=produce, args=(peer.client, peer.address, queue, total), daemon=True
        )
        producer.start()
        end = time.monotonic() + total / RATE + _PATIENCE_SECONDS

        def handler(body: bytes) -> bool:
            taken.append(time.monotonic() - DUE.unpack_from(body)[0])
            return True

        def is_done() -> bool:
            return len(taken) >= total or time.monotonic() > end

        peer.serve(queue, handler, is_done)
        producer.join()
        if len(taken) != total:
            raise RuntimeError(f"{len(taken):,} of {total:,} messages arrived")
        p50, p99, worst = latencies(taken[_WARM_SECONDS * RATE :])
        return [Result(measure="to its handler", p50=p50, p99=p99, worst=worst)]


def length(scale: Scale) -> int:
    """Return the seconds that a measurement lasts."""
    return scale.of(_SECONDS, 3)


def produce(maker: type[Client], address: str, queue: str, total: int, rate: float = RATE) -> None:
    """Send messages when they are due; one clock serves all processes of a machine."""
    client = maker(address, queue)
    rest = b"x" * (_SIZE - DUE.size)
    began, sent = time.monotonic(), 0
    while sent < total:
        due = min(int((time.monotonic() - began) * rate), total)
        if due > sent:
            client.produce([DUE.pack(began + n / rate) + rest for n in range(sent, due)])
            sent = due
        else:
            time.sleep(max(began + (sent + 1) / rate - time.monotonic(), 0.0))
    client.close()
