"""Many processes at a bounded queue: never more than fits, nothing lost, callers in order."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import func, select

from queue_core import Store
from queue_core.catalog.tables import slices
from queue_core.values.address import Address
from queue_core.values.model import Magazine
from tests.books import audit
from tests.children import Child, Journal
from tests.factories import make_queue, numbers_of, orders
from tests.waiting import PATIENCE, waits

pytestmark = pytest.mark.crash

BOUND = 12
PRODUCERS, LOADS = 4, 10


def produce(address: Address, first: int, journal: Journal) -> None:
    """Loads of one to three messages, one after the other."""
    with Store(address) as store:
        queue = store.queue("orders")
        for number in range(first, first + LOADS):
            journal.write("loading", number=number)
            ids = queue.load(orders(1 + number % 3, 10 * number), timeout=PATIENCE)
            journal.write("loaded", number=number, ids=ids.to_pylist())


def consume(address: Address, journal: Journal, end: Path) -> None:
    """Until there is nothing, once the others are done."""
    with Store(address) as store:
        queue = store.queue("orders")
        while True:
            last = end.exists()
            firing = queue.fire(5, timeout=0.5)
            if last and not firing:
                return
            journal.write("fired", ids=firing.ids.to_pylist())
            queue.delete(firing)


def held(store: Store) -> int:
    """What main holds, in one state of the catalog."""
    with store.catalog.read() as connection:
        here = slices.c.magazine == int(Magazine.MAIN)
        return int(connection.scalar(select(func.sum(slices.c.count)).where(here)) or 0)


@pytest.mark.parametrize("kills", [pytest.param(0, marks=pytest.mark.nightly), 2])
def test_many_processes_never_fill_a_queue_above_its_bound(address, store, tmp_path, kills):
    make_queue(store, shards=3, max_size=BOUND)
    journals = [Journal(tmp_path / f"journal-{n}") for n in range(PRODUCERS + 2)]
    producers = [
        Child(produce, address, 1000 * n, journals[n], log=tmp_path / f"producer-{n}")
        for n in range(PRODUCERS)
    ]
    consumers = [
        Child(consume, address, journal, tmp_path / "end", log=tmp_path / f"consumer-{n}")
        for n, journal in enumerate(journals[PRODUCERS:])
    ]
    most = []
    while any(child.running for child in producers):
        most.append(held(store))
        if kills and len(journals[0].read("loaded")) > 3:
            # In whatever they were: loading, or waiting in line.
            for victim in producers[:kills]:
                victim.kill()
            kills = 0
    codes = Counter(child.wait() for child in producers)
    (tmp_path / "end").touch()
    assert [child.wait() for child in consumers] == [0, 0]

    assert 0 < max(most) <= BOUND
    assert codes.keys() <= {0, -signal.SIGKILL}
    loaded = [i for journal in journals for entry in journal.read("loaded") for i in entry["ids"]]
    fired = [i for journal in journals for entry in journal.read("fired") for i in entry["ids"]]
    assert len(fired) == len(set(fired))
    assert set(loaded) <= set(fired)
    # Of a producer that was killed, its last load may have come in without its hearing of it.
    interrupted = codes[-signal.SIGKILL]
    assert len(set(fired) - set(loaded)) <= 3 * interrupted
    assert audit(store).messages == {}


def load_one(address: Address, number: int) -> None:
    with Store(address) as store:
        store.queue("orders").load(orders(1, number))


def test_callers_of_many_processes_keep_their_order(address, store, tmp_path):
    queue = make_queue(store, max_size=1)
    queue.load(orders(1))
    children = []
    for number in range(1, 6):
        children.append(Child(load_one, address, number, log=tmp_path / f"caller-{number}"))
        waits(store, number)

    seen: list[int] = []
    while len(seen) < 6:
        firing = queue.fire("all", timeout=PATIENCE)
        seen += numbers_of(firing.messages)
        queue.delete(firing)

    assert [child.wait() for child in children] == [0] * 5
    assert seen == list(range(6))


def test_the_next_goes_when_the_first_in_line_is_killed(address, store, tmp_path):
    queue = make_queue(store, max_size=1)
    queue.load(orders(1))
    first = Child(load_one, address, 1, log=tmp_path / "first")
    waits(store, 1)
    second = Child(load_one, address, 2, log=tmp_path / "second")
    waits(store, 2)

    first.kill()
    queue.delete(queue.fire("all"))

    assert second.wait() == 0
    assert numbers_of(queue.fire("all").messages) == [2]
