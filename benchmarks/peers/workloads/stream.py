"""A steady 1,000 messages a second: the time from when each was due until a Spark query has it."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import uuid
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.peers.contenders import spark_peers
from benchmarks.peers.contenders.spark_bare import Bare
from benchmarks.peers.figures import latencies
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers
from benchmarks.peers.spark import SparkPeer, session
from benchmarks.peers.workload import Scale, Workload
from benchmarks.peers.workloads.steady import DUE, RATE, length, produce

#: The first micro-batches start Python workers.
_WARM_SECONDS = 5
_PATIENCE_SECONDS = 60.0


class Stream(Workload):
    """A query that collects each micro-batch, and starts the next as soon as it can."""

    name = "stream"
    title = "1,000 messages a second: from the time when a message is due to a Spark query"

    def peers(self) -> Sequence[Any]:
        """Those to which plain Python can publish."""
        return [peer for peer in spark_peers() if not isinstance(peer, Bare)]

    def cases(self, scale: Scale) -> Sequence[str]:
        """By the time that it lasts."""
        return [f"{length(scale)} s"]

    def measure(self, peer: SparkPeer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """All latencies but the first."""
        queue = f"q{uuid.uuid4().hex[:12]}"
        maker, address = peer.producer()
        peer.create(queue)
        client = maker(address, queue)
        client.create()
        client.produce([DUE.pack(time.monotonic())])
        total = (_WARM_SECONDS + length(scale)) * RATE
        taken: list[float] = []

        def take(rows: DataFrame, _batch: int) -> None:
            bodies = [row[0] for row in rows.select(peer.body).collect()]
            now = time.monotonic()
            taken.extend(now - DUE.unpack_from(body)[0] for body in bodies)

        rows = session().createDataFrame([], f"{peer.body} binary")
        stream = peer.stream(queue, rows).writeStream.foreachBatch(take)
        with tempfile.TemporaryDirectory(prefix="peers-checkpoint-") as checkpoint:
            query = stream.option("checkpointLocation", checkpoint).start()
            _wait(taken, 1)
            context = multiprocessing.get_context("spawn")
            given = (maker, address, queue, total)
            producer = context.Process(target=produce, args=given, daemon=True)
            producer.start()
            _wait(taken, 1 + total, total / RATE)
            query.stop()
            query.awaitTermination()
            producer.join()
        p50, p99, worst = latencies(taken[1 + _WARM_SECONDS * RATE :])
        peer.drop(queue)
        return [Result(measure="to a micro-batch", p50=p50, p99=p99, worst=worst)]


def _wait(taken: list[float], count: int, seconds: float = 0.0) -> None:
    """Wait until so many messages have arrived."""
    end = time.monotonic() + seconds + _PATIENCE_SECONDS
    while len(taken) < count:
        if time.monotonic() > end:
            raise RuntimeError(f"{len(taken):,} of {count:,} messages arrived")
        time.sleep(0.05)
