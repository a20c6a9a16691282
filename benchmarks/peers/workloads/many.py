"""1 to 16 producers and as many consumers, each a process, at the same time."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.contenders import task_peers
from benchmarks.peers.peer import Client, Peer
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers
from benchmarks.peers.workload import Scale, Workload
from benchmarks.peers.workloads.passing import bodies

_MESSAGES, _BATCH, _SIZE = 100_000, 100, 100
_COUNTS = (1, 4, 16)
_PATIENCE_SECONDS = 300.0


class Many(Workload):
    """From the first message that is produced to the last that is acknowledged."""

    name = "many"
    title = "several producers and as many consumers at the same time, batches of 100"

    def peers(self) -> Sequence[Any]:
        """Both catalogs, and plain SQL on the same server."""
        wanted = ("ignis, SQLite", "ignis, PostgreSQL", "PostgreSQL, SKIP LOCKED")
        return [peer for peer in task_peers() if peer.name in wanted]

    def cases(self, scale: Scale) -> Sequence[str]:
        """By the number of processes."""
        counts = _COUNTS if scale.share == 1 else _COUNTS[:2]
        return [f"{count} and {count}" for count in counts]

    def measure(self, peer: Peer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """Start all, let them begin together, and wait for the last message."""
        count = int(case.split()[0])
        share = scale.of(_MESSAGES, 2 * _BATCH * count) // count
        client = peer.connect()
        queue = client.queue
        client.close()
        context = multiprocessing.get_context("spawn")
        together = context.Barrier(2 * count + 1)
        handled = context.Value("q", 0)
        given = (peer, queue, together)
        processes = [
            *(context.Process(target=_produce, args=(*given, share)) for _ in range(count)),
            *(
                context.Process(target=_consume, args=(*given, handled, share * count))
                for _ in range(count)
            ),
        ]
        for process in processes:
            process.daemon = True
            process.start()
        try:
            together.wait(_PATIENCE_SECONDS)
            began = time.perf_counter()
            while handled.value < share * count:
                if time.perf_counter() - began > _PATIENCE_SECONDS:
                    raise RuntimeError(f"{handled.value:,} of {share * count:,} messages arrived")
                time.sleep(0.005)
            seconds = time.perf_counter() - began
            for process in processes:
                process.join(_PATIENCE_SECONDS)
        finally:
            for process in processes:
                process.kill()
        return [Result(measure="pass on", rate=share * count / seconds)]


def _begun(peer: Peer, queue: str) -> Client:
    """
    Return a client that has produced and acknowledged a batch.

    The first one lets pyarrow import pandas, which takes each process 0.13 seconds of a core: with
    32 processes on two cores, that would be two of the seconds that are measured.
    """
    client = peer.connect(queue)
    client.open()
    client.produce(bodies(0, _BATCH, _SIZE))
    if client.consume(_BATCH, _PATIENCE_SECONDS):
        client.acknowledge(())
    return client


def _produce(peer: Peer, queue: str, together: Any, share: int) -> None:
    client = _begun(peer, queue)
    together.wait(_PATIENCE_SECONDS)
    for first in range(0, share, _BATCH):
        client.produce(bodies(first, min(_BATCH, share - first), _SIZE))
    client.close()


def _consume(peer: Peer, queue: str, together: Any, handled: Any, total: int) -> None:
    client = _begun(peer, queue)
    together.wait(_PATIENCE_SECONDS)
    while handled.value < total:
        taken = client.consume(_BATCH, 0.1)
        if taken:
            client.acknowledge(())
            with handled.get_lock():
                handled.value += len(taken)
    client.close()
