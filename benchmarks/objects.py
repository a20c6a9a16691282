"""Measure a typed queue: objects against the same rows as dicts, loaded, fired and read.

    python -m benchmarks.objects

Each of the rounds loads all messages into a new queue, fires them, and makes dicts or objects of
them. The least time of each kind counts.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from queue_core import Firing, Queue, Store

AT = dt.datetime(2020, 5, 17, 12, tzinfo=dt.UTC)


class State(Enum):
    """The state of an order."""

    PLACED = "placed"
    PAID = "paid"


@dataclass
class Order:
    """An order, as a dataclass."""

    number: int
    customer: str
    at: dt.datetime
    total: Decimal
    state: State
    tags: list[str]
    note: str | None = None


class OrderModel(BaseModel):
    """An order, as a pydantic model."""

    number: int
    customer: str
    at: dt.datetime
    total: Decimal
    state: State
    tags: list[str]
    note: str | None = None


def make(kind: Callable[..., Any], number: int) -> Any:
    """Return an order of a class."""
    return kind(
        number=number,
        customer=f"customer {number % 97}",
        at=AT + dt.timedelta(seconds=number),
        total=Decimal(number) / 4,
        state=State.PAID if number % 2 else State.PLACED,
        tags=["web", "new"],
        note=None if number % 3 else "urgent",
    )


#: Makes dicts or objects of a firing.
Read = Callable[[Queue, Firing], list[Any]]


def measure(store: Store, name: str, rows: list[Any], read: Read) -> float:
    """Return the seconds that it takes to load rows, to fire them, and to read them."""
    queue = store.create_queue(name, Order, shards=1)
    started = time.perf_counter()
    queue.load(rows)
    found = read(queue, queue.fire(len(rows)))
    seconds = time.perf_counter() - started
    assert len(found) == len(rows)
    return seconds


def main() -> None:
    """Print one row for each kind of message."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    dicts = [
        asdict(one) | {"state": one.state.value}
        for one in (make(Order, number) for number in range(given.messages))
    ]
    kinds: dict[str, tuple[list[Any], Read]] = {
        "dicts": (dicts, lambda _, firing: firing.messages.to_pylist()),
        "dataclass": (
            [make(Order, number) for number in range(given.messages)],
            lambda queue, firing: queue.objects(firing),
        ),
        "pydantic model": (
            [make(OrderModel, number) for number in range(given.messages)],
            lambda queue, firing: queue.objects(firing, OrderModel),
        ),
    }
    table = Table("messages", "milliseconds", "times the dicts", title=f"{given.messages} messages")
    with tempfile.TemporaryDirectory() as folder, Store.open(folder) as store:
        best = {
            kind: min(
                measure(store, f"{kind.split()[0]}-{number}", *case)
                for number in range(given.rounds)
            )
            for kind, case in kinds.items()
        }
    for kind, seconds in best.items():
        table.add_row(kind, f"{seconds * 1e3:.0f}", f"{seconds / best['dicts']:.2f}")
    Console(file=sys.stdout).print(table)


if __name__ == "__main__":
    main()
