"""`ConsumerPool.run`: asked to end, a process finishes its batches and gives back the rest."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from queue_core import ConsumerPool, Store
from queue_core.values.address import Address
from tests.children import Child
from tests.factories import make_queue, orders
from tests.waiting import PATIENCE, until

#: Longer than a child may live.
FOR_EVER = 3600.0


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
    until(lambda: counts(store)["in_flight"] > 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_finishes_its_batches_and_gives_back_the_rest(store, address, tmp_path, number):
    make_queue(store, shards=2).load(orders(400))
    # All of them would take 20 seconds.
    child = Child(work, address, 0.1, PATIENCE, log=tmp_path / "pool")
    # A pool that is asked to end before its first call gives all of them back.
    until(lambda: counts(store)["waiting"] + counts(store)["in_flight"] < 400)
    os.kill(child.pid, number)

    assert child.wait() == 0, child.output()
    assert counts(store)["in_flight"] == counts(store)["sidelined"] == 0
    assert 0 < counts(store)["waiting"] < 400


def test_a_handler_that_takes_too_long_is_left_and_its_messages_are_given_back(
    store, address, tmp_path
):
    make_queue(store).load(orders(4))
    child = Child(work, address, FOR_EVER, 0.2, log=tmp_path / "pool")
    started(store)
    os.kill(child.pid, signal.SIGTERM)

    assert child.wait() == 0, child.output()
    assert (counts(store)["waiting"], counts(store)["in_flight"]) == (4, 0)


def test_a_second_signal_ends_it_at_once(store, address, tmp_path):
    make_queue(store).load(orders(4))
    child = Child(work, address, FOR_EVER, FOR_EVER, log=tmp_path / "pool")
    started(store)
    os.kill(child.pid, signal.SIGTERM)
    until(lambda: not catches(child, signal.SIGTERM))
    assert child.exit_code is None
    os.kill(child.pid, signal.SIGTERM)

    assert child.wait() == -signal.SIGTERM


def catches(child: Child, number: int) -> bool:
    """Whether a process has a handler for a signal; the pool has none once it has noted one."""
    status = Path(f"/proc/{child.pid}/status").read_text()
    (caught,) = re.findall(r"SigCgt:\s+(\w+)", status)
    return bool(int(caught, 16) >> (number - 1) & 1)
