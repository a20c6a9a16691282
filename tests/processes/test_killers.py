"""Messages that kill the process of their handler: each is found, and all others are handled."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

from queue_core import ConsumerPool, Store
from queue_core.address import Address
from tests.children import Child, Journal
from tests.factories import make_queue, numbers_of, orders

COUNT = 2000
KILLERS = {150, 700, 701, 1999}
#: A pool of one worker fires at most so many messages ahead.
HELD = 4 * 16
#: Halvings of so many messages until one is alone, and twice alone.
DEATHS_EACH = HELD.bit_length() + 2


def handle_all(address: Address, journal: Path) -> None:
    """Handle all orders in the child, which a killer ends."""
    log = Journal(journal)

    def handler(message: dict[str, int]) -> bool:
        if message["number"] in KILLERS:
            os.kill(os.getpid(), signal.SIGKILL)
        log.write("handled", number=message["number"])
        return True

    with (
        Store(address) as store,
        ConsumerPool(store, "orders", handler, concurrency=1, batch=4, name="till", tasks=[]) as p,
    ):
        assert p.drain(60)
    os._exit(0)


def test_each_killer_is_sidelined_alone_and_all_others_are_handled(store, address, tmp_path):
    queue = make_queue(store, shards=2)
    queue.load(orders(COUNT))
    journal = Journal(tmp_path / "journal")

    deaths = 0
    while (
        end := (child := Child(handle_all, address, journal.path, log=tmp_path / "log")).wait()
    ) != 0:
        assert end == -signal.SIGKILL, child.output()
        deaths += 1
        assert deaths <= DEATHS_EACH * len(KILLERS)

    assert queue.browse().num_rows == 0
    assert set(numbers_of(queue.browse(magazine="sideline"))) == KILLERS
    failures = queue.failures()
    assert failures.column("kind").to_pylist() == ["killed"] * len(KILLERS)
    assert all("the last 2 times" in text for text in failures.column("reason").to_pylist())
    times = Counter(entry["number"] for entry in journal.read("handled"))
    assert times.keys() == set(range(COUNT)) - KILLERS
    again = times.total() - len(times)
    print(f"\n{deaths} deaths, {again} calls made again")
    # Of what is in hand, the messages of one death are half of those of the death before. Outcomes
    # that wait for their settlement come on top.
    assert again <= 4 * HELD * len(KILLERS)
    assert store.fsck().num_rows == 0
