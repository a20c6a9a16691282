"""Consumers with handlers that die, and the suspects that they leave."""

from __future__ import annotations

from collections import Counter
from typing import Any

from queue_core import Queue, Store
from queue_core.values.model import Consumer, HandlingConsumer
from queue_core.verbs.lose import start_again
from tests.factories import numbers_of


def start(store: Store, name: str = "till") -> HandlingConsumer:
    """Start a life of a consumer with handlers; what an earlier life held counts as lost."""
    return start_again(store.catalog, name)


def fire(queue: Queue, consumer: Consumer, count: int = 100, **how: Any) -> list[int]:
    """Fire messages, and return the numbers of their orders."""
    return numbers_of(queue.fire(count, consumer=consumer, **how).messages)


def losses(store: Store, magazine: str = "main") -> Counter[tuple[int, int]]:
    """Return how many messages were lost how often, and among how many."""
    found: Counter[tuple[int, int]] = Counter()
    for row in store.view("slices").to_pylist():
        if row["magazine"] == magazine:
            found[row["lost"], row["lost_among"]] += row["messages"]
    return found
