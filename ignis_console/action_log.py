"""The action log: who did what to how many messages, in the logging, in memory and in a file.

Each action has a line when it begins and one when it ends, with the same id. An action whose end is
missing was interrupted, or another process with the same file goes on with it: the next console
shows it.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from queue_core.errors import BadOption

#: The most actions that the page of the log shows.
KEPT = 500
#: The bytes at the end of a file in which actions without an end are looked for.
_TAIL = 4 << 20

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
    #: Messages that it has changed, or of one without an end, that it was to change; None: it
    #: failed.
    messages: int | None
    #: The error with which it failed; None: it did not.
    error: str | None = None
    #: The job that it started; the messages are those that it may move. None: it started none.
    job: str | None = None
    #: Whether it has ended.
    ended: bool = True
    #: The same in the line of its beginning and in that of its end.
    id: str = ""
    #: Its number in this process, from 1; 0: another process began it, or it has not ended.
    number: int = 0
    #: Messages that it had changed so far.
    done: int = 0


class ActionLog:
    """Remembers the latest actions, and appends each to a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=KEPT)
        self._running: dict[str, LogEntry] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._entries.extend(_without_end(path))
        try:
            self._file = None if path is None else path.open("a", encoding="utf-8")
        except OSError as error:
            raise BadOption(f"--action-log {path}: {error}") from error

    def begin(self, entry: LogEntry) -> LogEntry:
        """Write that an action begins; return it with its id, for `end`."""
        entry = replace(entry, id=secrets.token_hex(8), ended=False)
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
        """Write what an action has done at its end, and remember it; return it with its number."""
        with self._lock:
            self._count += 1
            done = self._running.pop(entry.id).done
            entry = replace(entry, ended=True, number=self._count, done=done)
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

    def find(self, number: str) -> LogEntry | None:
        """Return a remembered action by its number."""
        with self._lock:
            of_here = (each for each in self._entries if each.number)
            return next((each for each in of_here if str(each.number) == number), None)

    def latest(self) -> tuple[LogEntry, ...]:
        """Return the latest actions of this process, newest first, and former ones without end."""
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


def _without_end(path: Path | None) -> list[LogEntry]:
    """Return the actions of a file that have begun and not ended, newest first."""
    if path is None or not path.is_file():
        # A pipe or a terminal cannot be read again.
        return []
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(file.seek(0, 2) - _TAIL, 0))
        begun: dict[str, LogEntry] = {}
        for line in file:
            entry = _entry(line)
            if entry is not None and entry.ended:
                begun.pop(entry.id, None)
            elif entry is not None:
                begun[entry.id] = entry
        return list(reversed(begun.values()))[:KEPT]
    return []


def _entry(line: bytes) -> LogEntry | None:
    """Return the entry of a line of a file; None: it is another kind of line."""
    try:
        return LogEntry(**json.loads(line))
    except (ValueError, TypeError):
        return None
