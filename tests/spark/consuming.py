"""Helpers of the tests of `consume`."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from queue_core import Queue, Store

#: A message says what a handler is to do with it.
CASES = pa.schema([("number", pa.int64()), ("what", pa.string())])


class Declined(Exception):
    pass


class DeclinedForGood(Declined):
    pass


def make_cases(folder: Path, *what: str, shards: int = 2, **settings: Any) -> Queue:
    """A queue of one message per word, numbered from 0; by default, none is retried."""
    settings.setdefault("retry", None)  # it would come back during a slow test
    store = Store.open(folder / "store")
    queue = store.create_queue("cases", CASES, shards=shards, key="number", **settings)
    queue.load([{"number": number, "what": word} for number, word in enumerate(what)])
    return queue


def left_in(queue: Queue, magazine: str = "main") -> list[str]:
    """The words of the messages in a magazine, sorted."""
    return sorted(queue.browse(magazine=magazine).column("what").to_pylist())


def reasons(queue: Queue) -> dict[str, tuple[str, str | None]]:
    """The kind and the reason of each sidelined message, by its word; each has failed once."""
    sidelined = queue.browse(magazine="sideline")
    words = dict(
        zip(
            sidelined.column("_message_id").to_pylist(),
            sidelined.column("what").to_pylist(),
            strict=True,
        )
    )
    failures = queue.failures().to_pylist()
    assert len(failures) == len({failure["message_id"] for failure in failures})
    assert {failure["attempt"] for failure in failures} <= {0}
    return {words[each["message_id"]]: (each["kind"], each["reason"]) for each in failures}


class Journal:
    """Notes the messages that a handler has seen, in any process; the notes survive its death."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def note(self, number: int) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, b"%d\n" % number)
        os.close(file)

    def seen(self) -> Counter[int]:
        if not os.path.exists(self._path):
            return Counter()
        return Counter(map(int, Path(self._path).read_text().split()))
