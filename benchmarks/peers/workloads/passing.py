"""Produce and consume by a client: what several workloads do."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from functools import cache
from random import Random

from benchmarks.peers.figures import latencies
from benchmarks.peers.peer import Client, Peer
from benchmarks.peers.results import Result

_NUMBER = struct.Struct("<q")
#: Of this many messages, the last one fails.
FAILS = 100
_PATIENCE_SECONDS = 30.0
#: How many calls are made before the time counts.
_WARM_CALLS = 2
#: Each message takes its bytes from another place of the same noise.
_WINDOW, _STRIDE = 1 << 20, 4099


def bodies(first: int, count: int, size: int) -> list[bytes]:
    """Return messages of *size* bytes, each with its number; nothing in them can be compressed."""
    rest, noise = size - _NUMBER.size, _noise(size)
    starts = ((number, number * _STRIDE % _WINDOW) for number in range(first, first + count))
    return [_NUMBER.pack(number) + noise[start : start + rest] for number, start in starts]


@cache
def _noise(size: int) -> bytes:
    return Random(size).randbytes(_WINDOW + size)


def both_ways(
    peer: Peer,
    *,
    messages: int,
    size: int,
    batch: int,
    most_seconds: float,
    out: int | None = None,
    fails: bool = False,
) -> list[Result]:
    """
    Fill a new queue with one client, and empty it with another.

    Args:
        peer: A peer that runs.
        messages: How many messages.
        size: Their bytes.
        batch: How many are produced at once.
        most_seconds: When to stop producing, even if there are fewer messages then.
        out: How many are consumed at once; by default as many as are produced at once.
        fails: Whether one of a hundred fails.

    Returns:
        What producing and consuming have cost.
    """
    producer = peer.connect()
    try:
        sent, produced = _produce(producer, messages, batch, size, most_seconds)
    finally:
        producer.close()
    consumer = peer.connect(producer.queue)
    try:
        return [produced, _consume(consumer, sent, out or batch, fails=fails)]
    finally:
        consumer.drop()
        consumer.close()


def _produce(
    client: Client, messages: int, batch: int, size: int, most_seconds: float
) -> tuple[int, Result]:
    sent, calls = 0, _Calls()
    end = time.perf_counter() + most_seconds
    while sent < messages and (calls.count <= _WARM_CALLS or time.perf_counter() < end):
        # Making the bodies is nobody's work.
        made = bodies(sent, min(batch, messages - sent), size)
        begin = time.perf_counter()
        client.produce(made)
        calls.add(time.perf_counter() - begin, len(made))
        sent += len(made)
    return sent, calls.result("produce")


def _consume(client: Client, sent: int, batch: int, *, fails: bool) -> Result:
    calls = _Calls()
    numbers: list[int] = []
    while len(numbers) < sent:
        begin = time.perf_counter()
        got = client.consume(batch, _PATIENCE_SECONDS)
        if not got:
            raise RuntimeError(f"{len(numbers):,} of {sent:,} messages arrived")
        client.acknowledge(failing(len(numbers), len(got)) if fails else ())
        calls.add(time.perf_counter() - begin, len(got))
        numbers += [_NUMBER.unpack_from(body)[0] for body in got]
    if len(set(numbers)) != sent:
        raise RuntimeError("messages came twice")
    return calls.result("consume and acknowledge" if fails else "read and acknowledge")


class _Calls:
    """The times of calls, without the first ones, which connect and plan."""

    def __init__(self) -> None:
        self.count = 0
        self._messages = 0
        self._times: list[float] = []

    def add(self, seconds: float, messages: int) -> None:
        self.count += 1
        if self.count > _WARM_CALLS:
            self._times.append(seconds)
            self._messages += messages

    def result(self, measure: str) -> Result:
        p50, p99, worst = latencies(self._times)
        rate = self._messages / sum(self._times)
        return Result(measure=measure, rate=rate, p50=p50, p99=p99, worst=worst)


def failing(first: int, count: int) -> Sequence[int]:
    """Return the places of the messages that fail, among *count* from number *first*."""
    return range(FAILS - 1 - first % FAILS, count, FAILS)
