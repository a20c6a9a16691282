"""``python -m tests.power.workload FOLDER``: use every verb that writes, and say what is done.

Each step is noted in the file ``marks`` before it begins and when it has returned, so that a check
of a disk knows what was promised. A message is known by its number, whichever queue it is in.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from queue_core import Queue, Settlement, Store
from tests.golden.next_format import next_version

SCHEMA = pa.schema([("number", pa.int64()), ("customer", pa.string()), ("text", pa.string())])
#: A load of this many rows is in a file, and not in the catalog.
LARGE = 60
#: Where things are below the folder.
STORE, BACKUP, RESTORED, MARKS = "store", "backup", "restored", "marks"


class Notes:
    """The steps of a workload, each noted before and after."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT)
        self._next = 0

    @contextmanager
    def step(self, step: str, **given: Any) -> Iterator[None]:
        """Note that a step begins, and that it has ended."""
        self._note({"begin": step, **given})
        yield
        self._note({"end": step})

    def load(self, queue: Queue, count: int) -> None:
        """Load messages with the next numbers."""
        numbers = list(range(self._next, self._next + count))
        self._next += count
        rows = [{"number": n, "customer": f"c{n % 7}", "text": text(n)} for n in numbers]
        with self.step("load", numbers=numbers, queue=queue.name):
            queue.load(rows)

    def _note(self, note: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(note).encode() + b"\n")


def text(number: int) -> str:
    """What the message of a number says; it does not compress well."""
    return f"{number:08}" + "".join(chr(33 + number * k * k % 89) for k in range(2000))


def main(root: Path) -> None:
    """Do everything once."""
    # Copies by reads and writes, which can be recorded.
    shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]
    notes = Notes(root / MARKS)
    with notes.step("open"):
        store = Store.open(root / STORE)
    with notes.step("create"):
        queue = store.create_queue("orders", SCHEMA, shards=2, key="customer", sweep_after="1h")
        other = store.create_queue("other", SCHEMA, shards=1)
    for count in (1, 3, LARGE):
        notes.load(queue, count)
    notes.load(other, LARGE)
    notes.load(other, 1)
    _handle(notes, store, queue)
    with notes.step("close"):
        store.close()
    store = Store.open(root / STORE)
    queue, other = store.queue("orders"), store.queue("other")
    _delete(notes, other, LARGE - 4)
    notes.load(queue, 2)
    with notes.step("compact"):
        other.admin.compact()
    with notes.step("vacuum"):
        assert store.admin.vacuum(grace=0)
    for _ in range(2):
        with notes.step("backup"):
            store.admin.backup(root / BACKUP)
        notes.load(queue, LARGE)
    with notes.step("change"):
        queue.admin.change_settings(priority="number")
        queue.admin.add_columns(pa.schema([("note", pa.string())]))
    _handle(notes, store, queue)
    with notes.step("drop", queue="other"):
        other.admin.deactivate()
        other.admin.drop()
    with notes.step("vacuum"):
        store.admin.vacuum(grace=0)
    with notes.step("restore"):
        Store.restore(root / BACKUP, root / RESTORED)
    with notes.step("close"):
        store.close()
    with next_version(), notes.step("upgrade"):
        store = Store.open(root / STORE)
    with next_version():
        notes.load(store.queue("orders"), 2)
        store.close()


def _handle(notes: Notes, store: Store, queue: Queue) -> None:
    """Fire messages; delete, sideline and reload some, leave some in flight, and rescue others."""
    with notes.step("fire"):
        firing = queue.fire(24, consumer=store.consumer("till"))
    _settle(notes, queue, firing.messages, 8)
    with notes.step("reload"):
        queue.reload(firing.ids.slice(16, 4), consumer="till")
    with notes.step("fire"):
        queue.fire(5, consumer=store.consumer("dead"))
    with notes.step("sweep"):
        queue.sweep(older_than=0)
    with notes.step("shovel"):
        queue.shovel(6)


def _settle(notes: Notes, queue: Queue, messages: pa.Table, each: int) -> None:
    numbers, ids = (messages.column(name) for name in ("number", "_message_id"))
    deleted, sidelined = ids.slice(0, each), ids.slice(each, each)
    with notes.step("settle", deleted=numbers.slice(0, each).to_pylist()):
        queue.settle(
            Settlement.of(
                pa.table(
                    {
                        "_message_id": pa.concat_arrays([*deleted.chunks, *sidelined.chunks]),
                        "outcome": ["delete"] * each + ["sideline"] * each,
                    }
                )
            ),
            consumer="till",
        )


def _delete(notes: Notes, queue: Queue, count: int) -> None:
    firing = queue.fire(count)
    numbers = firing.messages.column("number").to_pylist()
    with notes.step("delete", deleted=numbers):
        queue.delete(firing)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
