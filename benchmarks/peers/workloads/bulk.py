"""Write, read and pass on with Spark: rates within the trigger, and by the clock on the wall."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.peers.contenders import spark_peers
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers
from benchmarks.peers.spark import PARTITIONS, SparkPeer, session
from benchmarks.peers.workload import Scale, Workload
from pyspark_ignis.tuning import MAX_BATCH_BYTES, UNLIMITED

_KEY = "concat('k', cast(id % 5000 as string)) as key"


def _payload(size: int) -> str:
    return f"cast(rpad(cast(id as string), {size}, 'x') as binary) as payload"


_TYPED = [
    *(f"id * {n} as whole_{n}" for n in range(1, 6)),
    *(f"cast(id % {n} as int) as small_{n}" for n in range(10, 13)),
    *(f"id * {n}.25D as real_{n}" for n in range(1, 6)),
    *(f"concat('text {n} ', cast(id % 997 as string)) as text_{n}" for n in range(1, 5)),
    "id % 2 = 0 as flag",
    "timestamp_micros(1700000000000000 + id) as at",
    "date_add(date'2025-01-01', cast(id % 365 as int)) as day",
]
#: Columns and messages of the full run.
_CASES = {
    "100 bytes with a key": ([_KEY, _payload(100)], 4_000_000),
    "1 KiB with a key": ([_KEY, _payload(1024)], 500_000),
    "20 typed columns": (_TYPED, 1_000_000),
    "100 kB": ([_payload(100_000)], 3_000),
    "10 MB": ([_payload(10_000_000)], 40),
}
#: Rounds of the first case in a full run: single ones differ by a tenth to a third.
_ROUNDS = 9
#: Cases whose messages are too large for `small_rows` of `tuned`.
_LARGE = {"100 kB", "10 MB"}


class Bulk(Workload):
    """The same rows for all."""

    name = "bulk"
    title = "through Spark: write, read, and read and write"

    def peers(self) -> Sequence[Any]:
        """Those with a source and a sink."""
        return spark_peers()

    def cases(self, scale: Scale) -> Sequence[str]:
        """By the shape of a message; a small run has two."""
        return list(_CASES) if scale.share == 1 else list(_CASES)[::2][:2]

    def rounds(self, case: str, scale: Scale) -> int:
        """More for the first case, whose ratios matter most."""
        return _ROUNDS if scale.share == 1 and case == next(iter(_CASES)) else scale.rounds

    def measure(self, peer: SparkPeer, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """All ways, after a few rows that start the Python workers."""
        columns, full = _CASES[case]
        rows = session().range(0, PARTITIONS, 1, PARTITIONS).selectExpr(*columns)
        with _set_for(case), _places(peer) as (here, there):
            _write(peer, rows, here)
            _through(peer, rows, here, there, PARTITIONS)
        messages = scale.of(full, PARTITIONS)
        rows = session().range(0, messages, 1, PARTITIONS).selectExpr(*columns)
        with _set_for(case), _places(peer) as (here, there):
            _settle_disk()
            begin = time.perf_counter()
            _write(peer, rows, here)
            written = Result(measure="write", rate=messages / (time.perf_counter() - begin))
            _settle_disk()
            read = _queried(peer.stream(here, rows).writeStream.format("noop"), messages)
            peer.again(here, peer.packed(rows))
            _settle_disk()
            through = _through(peer, rows, here, there, messages)
        return [written, *_both("read", read, messages), *_both("through", through, messages)]


@contextmanager
def _set_for(case: str) -> Iterator[None]:
    """Set what `small_rows` of `tuned` sets, if the messages are small."""
    if case not in _LARGE:
        session().conf.set(MAX_BATCH_BYTES, UNLIMITED)
    try:
        yield
    finally:
        session().conf.unset(MAX_BATCH_BYTES)


@contextmanager
def _places(peer: SparkPeer) -> Iterator[list[str]]:
    """Make two places, and free their disk."""
    places = [f"q{uuid.uuid4().hex[:12]}" for _ in range(2)]
    for place in places:
        peer.create(place)
    yield places
    for place in places:
        peer.drop(place)


def _settle_disk() -> None:
    """Let the disk write what was left to it, by this peer or by those before."""
    os.sync()


def _write(peer: SparkPeer, rows: DataFrame, place: str) -> None:
    peer.writer(peer.packed(rows).write, place).mode("append").save()


def _through(
    peer: SparkPeer, rows: DataFrame, here: str, there: str, messages: int
) -> tuple[float, float]:
    stream = peer.packed(peer.stream(here, rows))
    return _queried(peer.writer(stream.writeStream, there), messages)


def _queried(writer: Any, messages: int) -> tuple[float, float]:
    """Run a query to its end; return its seconds within triggers, and those by the clock."""
    checkpoint = tempfile.mkdtemp(prefix="peers-checkpoint-")
    try:
        begin = time.perf_counter()
        query = (
            writer.option("checkpointLocation", checkpoint)
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - begin
        progress = [each for each in query.recentProgress if each.numInputRows]
        found = sum(each.numInputRows for each in progress)
        if found != messages:
            raise RuntimeError(f"{found:,} of {messages:,} messages were read")
        return sum(each.durationMs["triggerExecution"] for each in progress) / 1e3, seconds
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _both(named: str, seconds: tuple[float, float], messages: int) -> list[Result]:
    within, clock = seconds
    return [
        Result(measure=f"{named}, within the trigger", rate=messages / within),
        Result(measure=f"{named}, by the clock", rate=messages / clock),
    ]
