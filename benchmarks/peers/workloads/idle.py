"""What a consumer of an empty queue costs: CPU of its process, and of its server."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.contenders import pool_peers
from benchmarks.peers.peer import Peer
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers
from benchmarks.peers.workload import Scale, Workload

_SECONDS = 6
_WARM_SECONDS = 2.0
_PATIENCE_SECONDS = 60.0


class Idle(Workload):
    """One consumer that waits."""

    name = "idle"
    title = "one consumer of an empty queue, with its server"

    def peers(self) -> Sequence[Any]:
        """With the pools."""
        return pool_peers()

    def cases(self, scale: Scale) -> Sequence[str]:
        """By the time that it lasts."""
        return [f"{scale.of(_SECONDS, 3)} s"]

    def measure(self, peer: Peer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """The process measures itself; a server may do other work for idle peers, too."""
        client = peer.connect()
        queue = client.queue
        client.close()
        seconds = scale.of(_SECONDS, 3)
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        consumer = context.Process(target=_wait, args=(peer, queue, seconds, there), daemon=True)
        consumer.start()
        if not here.poll(_PATIENCE_SECONDS):
            raise RuntimeError("the consumer did not start")
        here.recv()
        before = servers.cpu(peer.server)
        if not here.poll(seconds + _PATIENCE_SECONDS):
            raise RuntimeError("the consumer did not end")
        own = here.recv()
        server = servers.cpu(peer.server) - before
        consumer.join()
        return [
            Result(measure="the consumer", cpu=100 * own / seconds),
            Result(measure="the server", cpu=100 * server / seconds),
        ]


def _wait(peer: Peer, queue: str, seconds: float, there: Any) -> None:
    """Consume nothing for a time; tell when it has begun, and what it has cost."""
    begin = time.monotonic() + _WARM_SECONDS
    at_first: list[float] = []

    def is_done() -> bool:
        if time.monotonic() < begin:
            return False
        if not at_first:
            at_first.append(time.process_time())
            there.send(None)
        elif time.monotonic() >= begin + seconds:
            there.send(time.process_time() - at_first[0])
            return True
        return False

    peer.serve(queue, lambda body: True, is_done)
