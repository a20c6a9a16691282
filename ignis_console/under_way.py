"""Actions under way: a page answers before a long one ends, and the log shows it meanwhile.

Their rounds are brief, since nothing that a console does may keep a firing waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from ignis_console.action_log import LogEntry
from queue_core.catalog.records import progress
from queue_core.selection import rounds

#: Seconds after which the page of an action answers, and the action goes on.
ANSWER_SECONDS = 2.0


class NoPlace(Exception):
    """Other actions have all places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """An action that has not ended. The time is an ISO 8601 text in UTC, by the catalog's clock."""

    at: str
    who: str
    action: str
    queue: str
    #: Messages that it concerns, as they were shown before.
    messages: int
    #: Messages that it has changed so far.
    done: int = 0


class LongActions:
    """Runs some actions at a time, in threads of their own: pages always find a connection."""

    def __init__(self, places: int, patience: float) -> None:
        """*patience*: the seconds for which a further action waits for a place."""
        self._threads = ThreadPoolExecutor(places, "ignis-action")
        self._patience = patience
        self._lock = threading.Lock()
        self._running: dict[int, UnderWay] = {}

    def run(
        self, about: UnderWay, work: Callable[[], LogEntry], patience: float
    ) -> LogEntry | None:
        """
        Return the result of *work*, or None if it takes longer than *patience* seconds.

        Then it goes on, and notes its end in the log. Raises what *work* raises within that time,
        and `NoPlace` if it has not begun.
        """
        future = self._threads.submit(self._run, about, work)
        first = min(self._patience, patience)
        done, _ = wait([future], first)
        if not done and future.cancel():
            raise NoPlace
        done, _ = wait([future], None if patience == inf else patience - first)
        return future.result() if done else None

    def latest(self) -> tuple[UnderWay, ...]:
        """Return the actions that have not ended, newest first."""
        with self._lock:
            return tuple(reversed(self._running.values()))

    def close(self) -> None:
        """Wait until all have ended, so that each is in the log."""
        self._threads.shutdown()

    def _add(self, key: int, done: int, _: int) -> None:
        with self._lock:
            about = self._running[key]
            self._running[key] = replace(about, done=about.done + done)

    def _run(self, about: UnderWay, work: Callable[[], LogEntry]) -> LogEntry:
        with self._lock:
            self._running[id(about)] = about
        try:
            with rounds.brief(), progress.told_to(partial(self._add, id(about))):
                return work()
        finally:
            with self._lock:
                del self._running[id(about)]
