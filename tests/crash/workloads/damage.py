"""What cannot be read is set apart, and repaired."""

from __future__ import annotations

import contextlib
from pathlib import Path

from queue_core import Store
from queue_core.errors import DamagedSegment
from queue_core.values.model import State
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import FEW, MANY, Workload, around, prepared, the_queue


def the_file(store: Store) -> Path:
    (location,) = store.storage.list()
    return Path(store.storage.uri, location)


def spoils_a_file(store: Store, journal: Journal) -> None:
    """A bit of a segment is flipped; some of its messages are in flight."""
    prepared(store, journal)
    the_queue(store).fire(FEW, consumer=store.consumer("reader"))
    path = the_file(store)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def restores_the_file(store: Store) -> None:
    path = the_file(store)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def reads_all(store: Store, journal: Journal) -> None:
    """After the damaged messages are quarantined, the others can be read."""
    with contextlib.suppress(DamagedSegment):
        the_queue(store).browse()
    journal.write("read", count=the_queue(store).browse().num_rows)


def set_apart(store: Store, journal: Journal) -> None:
    assert journal.read("read")[-1]["count"] == FEW
    assert len(audit(store).ids(state=State.DAMAGED)) == MANY
    restores_the_file(store)
    assert the_queue(store).admin.repair().messages == MANY
    assert the_queue(store).browse().num_rows == FEW + MANY


def restores_what_was_set_apart(store: Store, journal: Journal) -> None:
    spoils_a_file(store, journal)
    reads_all(store, journal)
    restores_the_file(store)


def repairs(store: Store, journal: Journal) -> None:
    the_queue(store).admin.repair()


def all_is_readable(store: Store, journal: Journal) -> None:
    assert audit(store).ids(state=State.DAMAGED) == set()
    assert the_queue(store).browse().num_rows == FEW + MANY


_QUARANTINE = Workload(prepare=spoils_a_file, act=reads_all, check=set_apart, spoiled=True)
_REPAIR = Workload(prepare=restores_what_was_set_apart, act=repairs, check=all_is_readable)

FAULTS = {
    "quarantine.reported": _QUARANTINE,
    **around("quarantine", _QUARANTINE),
    **around("repair", _REPAIR),
}
