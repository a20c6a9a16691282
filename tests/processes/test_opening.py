"""Many processes find no store there, and each of them makes it: one store comes of it."""

import time

from queue_core import Store
from tests.books import audit
from tests.children import Child
from tests.factories import ORDERS, orders

PROCESSES = 12


def open_and_load(address, begin):
    time.sleep(max(0.0, begin - time.monotonic()))
    with Store(address) as store:
        store.create_queue("orders", ORDERS, shards=2, exist_ok=True).load(orders(10))


def test_a_store_can_be_made_by_many_at_once(address, tmp_path):
    begin = time.monotonic() + 0.5
    children = [
        Child(open_and_load, address, begin, log=tmp_path / f"child-{number}")
        for number in range(PROCESSES)
    ]
    ended = [child.wait() for child in children]

    assert ended == [0] * PROCESSES, "".join(child.output() for child in children)
    with Store(address) as store:
        assert store.queues() == ["orders"]
        assert len(audit(store).ids()) == 10 * PROCESSES
