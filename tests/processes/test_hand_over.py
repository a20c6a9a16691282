"""Priorities between processes: the lower one waits, and how soon it takes over.

The consumer of the higher priority is a separate process, which stops, is killed, or runs out of
credit while there is work.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from queue_core import ConsumerPool, Store
from queue_core.catalog.holders import interests
from queue_core.values.address import Address
from tests.children import PATIENCE, Child, Journal
from tests.factories import make_queue, orders
from tests.waiting import until

pytestmark = pytest.mark.crash

#: Seconds until the lower priority has work, and what a busy machine may take in addition.
PROMISED_SECONDS = 2.0
ALLOWANCE_SECONDS = 28.0


def consume(address: Address, journal: Path, how: dict[str, object], stop: Path) -> None:
    """Handle orders in the child, one every 20 ms, until the file *stop* exists."""
    log = Journal(journal)

    def handler(message: dict[str, object]) -> bool:
        log.write("handled", number=message["number"])
        time.sleep(3600 if how.get("max_in_flight") else 0.02)
        return True

    with Store(address) as store, ConsumerPool(store, "orders", handler, batch=1, **how):
        log.write("began", pid=os.getpid())
        while not stop.exists():
            time.sleep(0.01)
        log.write("stops")
    os._exit(0)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("stopped", marks=pytest.mark.nightly),
        *("killed", "out of credit", "killed spare"),
    ],
)
def test_the_lower_priority_takes_over(store, address, tmp_path, monkeypatch, how):
    queue = make_queue(store)
    journal, stop = Journal(tmp_path / "journal"), tmp_path / "stop"
    high: dict[str, object] = {"priority": 9, "concurrency": 1}
    low: dict[str, object] = {"priority": 1}
    if how == "out of credit":
        high["max_in_flight"] = 1
    if how == "killed spare":
        high, low = {"single_active": True, "concurrency": 1}, {"single_active": True}
    child = Child(consume, address, journal.path, high, stop, log=tmp_path / "log")
    got: list[int] = []

    def handler(message: dict[str, int]) -> bool:
        got.append(message["number"])
        return True

    try:
        until(lambda: journal.read("began"))
        # For now: its heart may beat late on a busy machine.
        monkeypatch.setattr(interests, "GONE_SECONDS", 10 * PATIENCE)
        with ConsumerPool(store, "orders", handler, concurrency=1, **low):
            queue.load(orders(2000))
            if how != "out of credit":
                until(lambda: len(journal.read("handled")) > 20)
                assert got == [], "a higher priority is interested"
            since = time.monotonic()
            if how == "stopped":
                stop.touch()
            elif how.startswith("killed"):
                os.kill(journal.read("began")[0]["pid"], signal.SIGKILL)
            monkeypatch.undo()
            until(lambda: got)
            took = time.monotonic() - since
            assert took < PROMISED_SECONDS + ALLOWANCE_SECONDS
            until(lambda: len(got) + len({e["number"] for e in journal.read("handled")}) >= 1999)
        print(f"\n{how}: handed over in {took:.2f} s")
    finally:
        child.kill()
    assert not set(got) & {entry["number"] for entry in journal.read("handled")}


def test_the_promise_can_be_kept():
    """A silent consumer is thought to be gone, and the queue looked at again, soon enough."""
    assert interests.BEAT_SECONDS * 2 < interests.GONE_SECONDS < PROMISED_SECONDS
