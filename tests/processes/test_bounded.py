"""Callers of many processes at a bounded queue: they go in the order of their arrival."""

from __future__ import annotations

import pytest

from queue_core import Store
from queue_core.values.address import Address
from tests.children import Child
from tests.factories import make_filled, numbers_of, orders
from tests.waiting import PATIENCE, waits

pytestmark = [pytest.mark.crash, pytest.mark.each_catalog]


def load_one(address: Address, number: int) -> None:
    with Store(address) as store:
        store.queue("orders").load(orders(1, number))


def test_callers_of_many_processes_keep_their_order(address, store, tmp_path):
    queue = make_filled(store, 1, max_size=1)
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


@pytest.mark.each_catalog(False)
def test_the_next_goes_when_the_first_in_line_is_killed(address, store, tmp_path):
    queue = make_filled(store, 1, max_size=1)
    first = Child(load_one, address, 1, log=tmp_path / "first")
    waits(store, 1)
    second = Child(load_one, address, 2, log=tmp_path / "second")
    waits(store, 2)

    first.kill()
    queue.delete(queue.fire("all"))

    assert second.wait() == 0
    assert numbers_of(queue.fire("all").messages) == [2]
