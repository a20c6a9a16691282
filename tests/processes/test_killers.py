"""Messages that kill the process of their handler: each is found, and all others are handled."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from queue_core import ConsumerPool, Store
from queue_core.pool.timings import LINGER_SECONDS
from queue_core.values.address import Address
from queue_core.values.model import State
from tests.books import audit
from tests.children import Child, Journal
from tests.factories import make_queue, numbers_of, orders

COUNT = 2000
KILLERS = {150, 700, 701, 1999}
BATCH = 4
#: A pool of one worker fires at most so many messages ahead.
HELD = BATCH * 16


def handle_all(address: Address, journal: Path) -> None:
    """Handle all orders in the child, which a killer ends."""
    log = Journal(journal)

    def handler(message: dict[str, int]) -> bool:
        if message["number"] in KILLERS:
            os.kill(os.getpid(), signal.SIGKILL)
        log.write("handled", number=message["number"], at=time.monotonic())
        return True

    with (
        Store(address) as store,
        ConsumerPool(
            store, "orders", handler, concurrency=1, batch=BATCH, name="till", tasks=[]
        ) as pool,
    ):
        assert pool.drain()
    os._exit(0)


def long_handled(calls: list[dict[str, Any]]) -> set[int]:
    """
    The numbers of a life's calls whose outcomes were due at a look that the worker has taken.

    It looks after each batch. So a call is followed by a look before the call that is one batch
    later, and its outcome waits since then at the latest.
    """
    if len(calls) <= BATCH:
        return set()
    looked = calls[-1 - BATCH]["at"]
    return {
        call["number"]
        for call, later in zip(calls, calls[BATCH:], strict=False)
        if looked - later["at"] >= LINGER_SECONDS
    }


@pytest.mark.nightly
def test_each_killer_is_sidelined_alone_and_all_others_are_handled(store, address, tmp_path):
    queue = make_queue(store, shards=2)
    number_of = dict(zip(queue.load(orders(COUNT)).to_pylist(), range(COUNT), strict=True))
    journal = Journal(tmp_path / "journal")

    deaths = known = 0
    #: In how many deaths each message was in the hands of the pool, and the sizes of hands without
    #: suspects.
    lost: Counter[int] = Counter()
    hands: list[int] = []
    while (
        end := (child := Child(handle_all, address, journal.path, log=tmp_path / "log")).wait()
    ) != 0:
        assert end == -signal.SIGKILL, child.output()
        calls = journal.read("handled")[known:]
        known += len(calls)
        hand = {number_of[id] for id in audit(store).ids(state=State.FIRED)}
        lost.update(hand)
        assert not hand & long_handled(calls), "outcomes were not settled in time"
        assert len(hand - {call["number"] for call in calls}) <= HELD
        fired = [row for row in store.view("slices").to_pylist() if row["state"] == "fired"]
        (among,) = {row["lost_among"] for row in fired}
        if among:
            assert len(hand) <= max(among // 2, 1), "suspects were not fired in halves"
        else:
            # A killer is a suspect from its first kill on.
            hands.append(len(hand))
            assert len(hands) <= len(KILLERS)
        deaths += 1
        # Halvings of what was in hand until a killer is alone, and once more alone.
        assert deaths <= len(KILLERS) * (max(hands).bit_length() + 1)

    assert queue.browse().num_rows == 0
    assert set(numbers_of(queue.browse(magazine="sideline"))) == KILLERS
    failures = queue.failures()
    assert failures.column("kind").to_pylist() == ["killed"] * len(KILLERS)
    assert all("the last 2 times" in text for text in failures.column("reason").to_pylist())
    times = Counter(entry["number"] for entry in journal.read("handled"))
    assert times.keys() == set(range(COUNT)) - KILLERS
    print(f"\n{deaths} deaths, {times.total() - len(times)} calls made again, in hand {hands}")
    # A kill repeats nothing but what was in hand.
    assert {number for number, calls in times.items() if calls > 1 + lost[number]} == set()
    assert store.admin.fsck().num_rows == 0
