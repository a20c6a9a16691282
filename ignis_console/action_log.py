"""The action log: who did what to how many messages, in the logging, in memory and in a file."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from queue_core.errors import BadOption

#: The most actions that the page of the log shows.
KEPT = 500

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One action. Times are ISO 8601 texts in UTC, by the catalog's clock."""

    at: str
    who: str
    address: str
    action: str
    queue: str
    #: The parameters that the person chose.
    chosen: dict[str, str]
    #: Messages that it concerned; None: it failed.
    messages: int | None
    #: The error with which it failed; None: it did not.
    error: str | None = None
    #: The job that it started; the messages are those that it may move. None: it started none.
    job: str | None = None
    #: Its number in this process, from 1.
    number: int = 0


class ActionLog:
    """Remembers the latest actions, and appends each to a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=KEPT)
        self._lock = threading.Lock()
        self._count = 0
        try:
            self._file = None if path is None else path.open("a", encoding="utf-8")
        except OSError as error:
            raise BadOption(f"--action-log {path}: {error}") from error

    def add(self, entry: LogEntry) -> LogEntry:
        """Write an action to the log; return it with its number."""
        with self._lock:
            self._count += 1
            entry = replace(entry, number=self._count)
            text = json.dumps(asdict(entry), ensure_ascii=True)
            _log.info("%s", text)
            self._entries.appendleft(entry)
            if self._file is not None:
                try:
                    self._file.write(text + "\n")
                    self._file.flush()
                except OSError as error:
                    _log.error("the action log cannot be written: %s", error)
        return entry

    def find(self, number: str) -> LogEntry | None:
        """Return a remembered action by its number."""
        with self._lock:
            return next((each for each in self._entries if str(each.number) == number), None)

    def latest(self) -> list[LogEntry]:
        """Return the latest actions of this process, newest first."""
        with self._lock:
            return list(self._entries)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
