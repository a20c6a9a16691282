"""Open what a failure of power has left, and hold it against what had been promised by then."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from queue_core import Store
from queue_core.errors import BadOption, DamagedBackup
from tests.books import audit
from tests.golden.next_format import next_version
from tests.power.workload import BACKUP, LARGE, RESTORED, STORE, text


@dataclass
class Promised:
    """What the notes of a workload promise: ended steps are done, the last may be in doubt."""

    loaded: dict[str, set[int]] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    #: The step that has begun and not ended, as it was noted.
    doubt: dict[str, Any] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    #: The numbers that each ended backup has.
    backed_up: list[set[int]] = field(default_factory=list)

    @staticmethod
    def by(said: bytes) -> Promised:
        """What had been promised when a process had said this."""
        promised = Promised()
        for line in said.splitlines():
            promised._read(json.loads(line))
        return promised

    def _read(self, note: dict[str, Any]) -> None:
        if "begin" in note:
            self.doubt = note
            self.begun.add(note["begin"])
            return
        step, given, self.doubt = note["end"], self.doubt, {}
        self.done.append(step)
        if step == "load":
            self.loaded.setdefault(given["queue"], set()).update(given["numbers"])
        elif step == "drop":
            self.dropped.add(given["queue"])
        elif step == "backup":
            self.backed_up.append(self.waiting())
        self.deleted.update(given.get("deleted", ()))

    def waiting(self) -> set[int]:
        """The numbers of messages that must be there."""
        return set().union(*self.loaded.values()) - self.deleted


def check(root: Path, said: bytes) -> None:
    """Raise `AssertionError`, or an error of ignis, if a promise is broken."""
    promised = Promised.by(said)
    with ExitStack() as versions:
        if "upgrade" in promised.begun:
            versions.enter_context(next_version())
        # Made anew, if the process had not yet said that it was made.
        with Store.open(root / STORE, create="open" not in promised.done) as store:
            _check_store(store, promised)
    if "backup" in promised.begun:
        _check_backup(root, promised)
    if "restore" in promised.done:
        with Store.open(root / RESTORED, create=False) as store:
            assert _found(store) == promised.backed_up[-1]
            _check_order(store)


def _check_store(store: Store, promised: Promised) -> None:
    _check_order(store)
    names = set(store.queues())
    doubtful = promised.doubt.get("queue") if promised.doubt.get("begin") == "drop" else None
    if "create" in promised.done:
        must = {"orders", "other"} - promised.dropped - {doubtful}
        assert must <= names <= must | {doubtful}
    found = _found(store)
    promised_there = set().union(
        *(
            numbers
            for name, numbers in promised.loaded.items()
            if name not in promised.dropped | {doubtful}
        )
    )
    lost = promised_there - promised.deleted - _doubtful(promised, "deleted") - found
    assert not lost, f"lost: {sorted(lost)}"
    again = promised.deleted & found
    assert not again, f"deleted, and there again: {sorted(again)}"
    for key in ("numbers", "deleted"):
        doubt = _doubtful(promised, key)
        assert doubt & found in (set(), doubt), f"a part of {promised.doubt}"
    known = set().union(*promised.loaded.values()) | _doubtful(promised, "numbers")
    assert found <= known, f"never loaded: {found - known}"
    if "orders" in names:
        _go_on(store)


def _check_order(store: Store) -> None:
    findings = store.admin.fsck(deep=True)
    assert not findings.num_rows, findings.to_pylist()
    audit(store)


def _doubtful(promised: Promised, key: str) -> set[int]:
    return set(promised.doubt.get(key, ()))


def _found(store: Store) -> set[int]:
    """The numbers of all messages, each once and with its content; nothing stays in flight."""
    numbers: list[int] = []
    for name in store.queues():
        queue = store.queue(name)
        queue.sweep(older_than=0)
        for magazine in ("main", "sideline"):
            rows = queue.browse(magazine=magazine)
            numbers += rows["number"].to_pylist()
            assert rows["text"].to_pylist() == [text(n) for n in rows["number"].to_pylist()]
    assert len(numbers) == len(set(numbers)), "a message is there twice"
    return set(numbers)


def _go_on(store: Store) -> None:
    """Use the store as if nothing had happened."""
    queue = store.queue("orders")
    rows = [{"number": -n, "customer": "c", "text": text(n)} for n in range(1, LARGE)]
    queue.load(rows)
    store.admin.vacuum(grace=0)
    firing = queue.fire(len(rows), selector="number < 0")
    assert len(firing.messages) == len(rows)
    queue.delete(firing)
    audit(store)


def _check_backup(root: Path, promised: Promised) -> None:
    """A backup that has returned can be restored, even if a later one was cut off."""
    again = root / "again"
    try:
        Store.restore(root / BACKUP, again)
    except (BadOption, DamagedBackup):
        assert not promised.backed_up
        return
    with Store.open(again, create=False) as store:
        _check_order(store)
        found = _found(store)
    doubtful = promised.doubt.get("begin") == "backup"
    assert (promised.backed_up and found == promised.backed_up[-1]) or (
        doubtful and found == promised.waiting()
    )
