"""The history of a soak: a journal per process, durable before the process continues.

An action is written down twice: before it, as an intent, and after it, with its outcome. So a
process that is killed in between leaves an intent whose outcome is unknown. All entries have the
time by the machine's stopwatch, which no change of the clock affects.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Bytes after which a journal continues in another file: small files fit even on an almost full
#: disk.
_PART_BYTES = 24_000


class History:
    """The journal of one process; safe for threads."""

    def __init__(self, folder: Path, life: str) -> None:
        self._path = folder / life
        self._part = 0
        self._lock = threading.Lock()
        self._file = -1
        self._written = 0

    def write(self, what: str, **details: Any) -> float:
        """Write an entry; return its time once it is durable."""
        with self._lock:
            at = time.monotonic()
            line = json.dumps({"at": at, "what": what, **details}).encode() + b"\n"
            if self._file < 0 or self._written > _PART_BYTES:
                self._next_part()
            os.write(self._file, line)
            os.fsync(self._file)
            self._written += len(line)
        return at

    def close(self) -> None:
        """Close the journal; a later entry opens another file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def _next_part(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._part += 1
        name = f"{self._path}.{self._part:06}.jsonl"
        self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._written = 0


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the entries of all processes, those of one process in order, with its ``life``."""
    for file in sorted(folder.glob("*.jsonl")):
        life = file.name.rsplit(".", 2)[0]
        # A line that was cut short was never durable.
        for line in file.read_text().split("\n")[:-1]:
            yield {"life": life, **json.loads(line)}
