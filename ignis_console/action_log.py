"""The action log: who did what to how many messages, in the logging, in memory and in a file.

Each action has a line when it begins and one when it ends, with the same id, which is also that of
its row in the view `acts`. The page Log shows that view, with the actions of this console that have
changed nothing.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from queue_core.catalog.records.acts import new_id
from queue_core.errors import BadOption

#: The most actions that the page of the log shows.
KEPT = 500

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One action, or an act. Times are ISO 8601 texts in UTC, by the catalog's clock."""

    at: str
    who: str
    #: The address of the person's browser; of an act by another way, the machine.
    address: str
    #: `console`, `command line` or `python`.
    by: str = "console"
    action: str
    queue: str
    #: The parameters that the person chose.
    chosen: dict[str, str]
    #: Messages that it has changed; before its end, those that it is to change. None: it failed.
    messages: int | None
    #: The error with which it failed; None: it did not.
    error: str | None = None
    #: The job that it started; the messages are those that it may move. None: it started none.
    job: str | None = None
    #: Whether it has ended.
    ended: bool = True
    #: The same in the line of its beginning and in that of its end.
    id: str = ""
    #: Messages that it had changed so far.
    done: int = 0


class ActionLog:
    """Remembers the latest actions, and appends each to a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=KEPT)
        self._running: dict[str, LogEntry] = {}
        self._lock = threading.Lock()
        try:
            self._file = None if path is None else path.open("a", encoding="utf-8")
        except OSError as error:
            raise BadOption(f"--action-log {path}: {error}") from error

    def begin(self, entry: LogEntry) -> LogEntry:
        """Write that an action begins; return it with its id, for `end`."""
        entry = replace(entry, id=new_id(), ended=False)
        with self._lock:
            self._write(entry)
            self._running[entry.id] = entry
        return entry

    def advance(self, key: str, done: int, _: int = 0) -> None:
        """Note that the action with an id has changed *done* further messages."""
        with self._lock:
            entry = self._running[key]
            self._running[key] = replace(entry, done=entry.done + done)

    def end(self, entry: LogEntry) -> LogEntry:
        """Write what an action has done at its end, and remember it; return it as it ended."""
        with self._lock:
            done = self._running.pop(entry.id).done
            entry = replace(entry, ended=True, done=done)
            self._write(entry)
            self._entries.appendleft(entry)
        return entry

    def _write(self, entry: LogEntry) -> None:
        text = json.dumps(asdict(entry), ensure_ascii=True)
        _log.info("%s", text)
        if self._file is not None:
            try:
                self._file.write(text + "\n")
                self._file.flush()
            except OSError as error:
                _log.error("the action log cannot be written: %s", error)

    def find(self, key: str) -> LogEntry | None:
        """Return a remembered action by its id."""
        with self._lock:
            return next((each for each in self._entries if each.id == key), None)

    def latest(self) -> tuple[LogEntry, ...]:
        """Return the latest actions of this process, newest first."""
        with self._lock:
            return tuple(self._entries)

    def running(self) -> tuple[LogEntry, ...]:
        """Return the actions that have not ended, newest first."""
        with self._lock:
            return tuple(reversed(self._running.values()))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
