"""A circuit breaker that several processes share, also when one of them is killed as it probes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from queue_core import Breaker, ConsumerPool, Store
from queue_core.pool import breaking
from queue_core.values.address import Address
from tests.children import Child, Journal
from tests.factories import make_filled
from tests.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.each_catalog]

BREAKER = Breaker(of=4, pause=0.2, max_pause=0.4)


def work(address: Address, journal: Path, down: Path, hangs: bool) -> None:
    """Handle orders in the child until it is killed; calls fail, or hang, while *down* exists."""
    breaking.LEASE_SECONDS = 1.0
    log = Journal(journal)
    failed = 0

    def handler(message: dict[str, int]) -> bool:
        nonlocal failed
        log.write("called", number=message["number"])
        if down.exists():
            if hangs and failed >= 2:
                log.write("probing")
                time.sleep(3600)
            failed += 1
            raise ConnectionError("503")
        log.write("handled", number=message["number"])
        return True

    with (
        Store(address) as store,
        ConsumerPool(store, "orders", handler, concurrency=1, batch=5, breaker=BREAKER),
    ):
        time.sleep(3600)


def test_processes_share_a_breaker_and_survive_the_death_of_the_one_that_probes(
    store, address, tmp_path
):
    # A retry would come back to main during a slow test.
    queue = make_filled(store, 300, shards=2, retry=None)
    down = tmp_path / "down"
    down.touch()
    journals = [Journal(tmp_path / f"journal-{name}") for name in "abc"]

    def start(number, hangs):
        path = journals[number].path
        return Child(work, address, path, down, hangs, log=tmp_path / f"log-{number}")

    def in_flight():
        return store.view("queues").column("in_flight").to_pylist()[0]

    children = [start(0, True)]
    try:
        until(lambda: journals[0].read("probing"))
        assert store.view("breakers").column("state").to_pylist() == ["probing"]
        children[0].kill()
        children[0].wait_for_rollback(store)
        held = in_flight()
        since = time.monotonic()
        children += [start(1, False), start(2, False)]
        # A probe in each pause, by one of them.
        until(lambda: sum(len(journal.read("called")) for journal in journals[1:]) >= 3)
        down.unlink()
        lasted = time.monotonic() - since
        until(lambda: queue.peek(300).num_rows == 0)
        until(lambda: in_flight() == held)
    finally:
        for child in children:
            child.kill()

    handled = [e["number"] for journal in journals for e in journal.read("handled")]
    failed = queue.peek(300, magazine="sideline").num_rows
    assert len(handled) == len(set(handled)) == 300 - failed - held
    assert 1 <= held <= 1 + 5
    # Two before the breaker opened, and one probe in each pause.
    assert failed <= 2 + 1 + lasted / BREAKER.pause
    assert store.view("breakers").column("state").to_pylist() == ["closed"]
