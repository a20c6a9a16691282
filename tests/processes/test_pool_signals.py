"""`ConsumerPool.run`: asked to end, a process finishes its batches and gives back the rest."""

import os
import signal
import time

import pytest

from queue_core import ConsumerPool, Store
from queue_core.address import Address
from tests.children import Child
from tests.contract.pools import eventually
from tests.factories import make_queue, orders


def work(address: Address, seconds: float, timeout: float) -> None:
    """Handle messages slowly until a signal comes."""

    def handle(_: dict) -> bool:
        time.sleep(seconds)
        return True

    with Store(address) as store:
        ConsumerPool(store, "orders", handle, concurrency=2, batch=4, name="till").run(timeout)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def counts(store: Store) -> dict:
    (row,) = store.view("queues").to_pylist()
    return row


def started(store: Store) -> None:
    eventually(lambda: counts(store)["in_flight"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_finishes_its_batches_and_gives_back_the_rest(store, address, tmp_path, number):
    make_queue(store, shards=2).load(orders(400))
    child = Child(work, address, 0.01, 10.0, log=tmp_path / "pool")
    started(store)
    os.kill(child.pid, number)

    assert child.wait() == 0, child.output()
    assert counts(store)["in_flight"] == counts(store)["sidelined"] == 0
    assert 0 < counts(store)["waiting"] < 400


def test_a_handler_that_takes_too_long_is_left_and_its_messages_are_given_back(
    store, address, tmp_path
):
    make_queue(store).load(orders(4))
    child = Child(work, address, 60.0, 0.2, log=tmp_path / "pool")
    started(store)
    begun = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)

    assert child.wait() == 0, child.output()
    assert time.monotonic() - begun < 30
    assert (counts(store)["waiting"], counts(store)["in_flight"]) == (4, 0)


def test_a_second_signal_ends_it_at_once(store, address, tmp_path):
    make_queue(store).load(orders(4))
    child = Child(work, address, 60.0, 60.0, log=tmp_path / "pool")
    started(store)
    os.kill(child.pid, signal.SIGTERM)
    # Not before the first one was noted.
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGTERM)

    assert child.wait(10) == -signal.SIGTERM
