"""Measure the cost of registering, notifying and removing consumers, and how evenly they share.

    python -m benchmarks.consumers [--rounds 2000]

The queue is a list in memory, so that only the manager is measured. The first table should be flat.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from queue_core.consumers.consumer import QueueConsumer, SuspendReason
from queue_core.consumers.manager import QueueConsumerManager

SIZES = (10, 100, 1000)
#: Messages that ten equal consumers share.
SHARED = 100_000


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=2000)
    rounds = arguments.parse_args().rounds
    table = Table(title="microseconds each, by the number of consumers")
    table.add_column("consumers", justify="right")
    for column in ("register", "notify and deliver", "uninterested and back", "remove"):
        table.add_column(column, justify="right")
    for size in SIZES:
        table.add_row(f"{size:,}", *(f"{each:.1f}" for each in costs(size, rounds)))
    console = Console()
    console.print(table)
    shares, wakeups = shared(10)
    console.print(
        f"{SHARED:,} messages, 10 consumers: shares from {min(shares.values()):,} to "
        f"{max(shares.values()):,}; {wakeups / SHARED:.3f} wake-ups per message"
    )


def costs(size: int, rounds: int) -> list[float]:
    """Return the microseconds of each operation on a manager with *size* consumers."""
    manager = QueueConsumerManager("q")
    messages: deque[int] = deque()
    notified: deque[QueueConsumer] = deque()
    consumers = [consumer(str(n), messages, notified) for n in range(size)]
    registered = timed(consumers, lambda each: each.join(manager))
    notified.clear()
    # Consumers that were notified when they came find nothing.
    for each in consumers:
        each.pull(1)

    def arrive(number: int) -> None:
        messages.append(number)
        manager.notify_arrival()
        while notified:
            each = notified.popleft()
            # Two, so that the only message is not all that it could take.
            while each.pull(2):
                pass

    def turn(number: int) -> None:
        consumers[number % size].suspend(SuspendReason.CREDIT)
        consumers[number % size].resume(SuspendReason.CREDIT)

    notifying = timed(range(rounds), arrive)
    turned = timed(range(rounds), turn)
    return [registered, notifying, turned, timed(consumers, lambda each: each.leave())]


def shared(count: int) -> tuple[Counter[str], int]:
    """Return the shares of a steady stream, when each pulls ten in turn; and all wake-ups."""
    manager = QueueConsumerManager("q")
    messages: deque[int] = deque()
    notified: deque[QueueConsumer] = deque()
    for n in range(count):
        consumer(str(n), messages, notified).join(manager)
    got: Counter[str] = Counter()
    for start in range(0, SHARED, 50):
        messages.extend(range(start, start + 50))
        manager.notify_arrival()
        for _ in range(6):
            pull(notified, got)
    while notified:
        pull(notified, got)
    return got, manager.wakeups


def pull(notified: deque[QueueConsumer], got: Counter[str]) -> None:
    """Let the consumer that was notified first pull once, and again later if it got messages."""
    if notified:
        each = notified.popleft()
        work = each.pull(10)
        if work:
            got[each.name] += len(work)
            notified.append(each)


def consumer(name: str, messages: deque[int], notified: deque[QueueConsumer]) -> QueueConsumer:
    """Return a consumer of messages in memory, appended to *notified* when it is notified."""

    def take(limit: int) -> list[int] | None:
        return [messages.popleft() for _ in range(min(limit, len(messages)))] or None

    return QueueConsumer(name, take, notified.append)


def timed(over: Any, work: Callable[[Any], object]) -> float:
    """Return the average microseconds of one call."""
    began = time.perf_counter()
    for each in over:
        work(each)
    return (time.perf_counter() - began) * 1e6 / len(over)


if __name__ == "__main__":
    main()
