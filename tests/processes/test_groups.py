"""Twelve processes with overlapping selectors at one queue with groups: in order, nothing twice."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

from queue_core import Store
from queue_core.values.address import Address
from tests.children import PATIENCE, Child, Journal

pytestmark = [pytest.mark.nightly, pytest.mark.crash]

SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("who", pa.string())])
PROCESSES, MESSAGES, GROUPS = 12, 360, 20
SELECTORS = (None, "number >= 0", "number % 2 = 0", "who < 'g15'", "number % 3 <> 1", "_age >= 0")


def consume(address: Address, journal: Path, stop: Path, selector: str | None) -> None:
    """Fire messages, report them, and delete them, until told to stop."""
    told = Journal(journal)
    with Store(address) as store:
        queue = store.queue("groups")
        while not stop.exists():
            firing = queue.fire(5, selector=selector, timeout=0.2)
            if len(firing):
                # Before it is deleted: until then nobody else gets one of these groups.
                told.write("took", at=time.monotonic(), rows=firing.messages["number"].to_pylist())
                assert queue.delete(firing) == len(firing)


def test_twelve_processes_take_each_group_in_order(
    store: Store, address: Address, tmp_path: Path
) -> None:
    queue = store.create_queue("groups", SCHEMA, shards=4, group="who")
    rows = [{"number": n, "who": f"g{n % GROUPS:02}"} for n in range(MESSAGES)]
    for first in range(0, MESSAGES, 40):
        queue.load(rows[first : first + 40])
    stop = tmp_path / "stop"
    journals = [tmp_path / f"journal-{number}" for number in range(PROCESSES)]
    children = [
        Child(
            consume,
            address,
            journal,
            stop,
            SELECTORS[number % len(SELECTORS)],
            log=tmp_path / f"log-{number}",
        )
        for number, journal in enumerate(journals)
    ]
    end = time.monotonic() + PATIENCE
    while sum(queue.metadata()["deleted"].to_pylist()) < MESSAGES and time.monotonic() < end:
        time.sleep(0.05)
    stop.touch()
    for child in children:
        assert child.wait() == 0, child.output()

    entries = [entry for journal in journals for entry in Journal(journal).read("took")]
    taken = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: entry["at"]):
        for number in entry["rows"]:
            taken[number % GROUPS].append(number)
    assert {group: list(range(group, MESSAGES, GROUPS)) for group in range(GROUPS)} == dict(taken)
