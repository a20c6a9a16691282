"""A thread that repeats its work at intervals, even after errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class PeriodicThread:
    """Calls *work* after *first* seconds, and then every *every* seconds, until it is stopped."""

    def __init__(
        self, name: str, work: Callable[[], object], every: float, first: float | None = None
    ) -> None:
        self._name = name
        self._work = work
        self._every = every
        self._first = every if first is None else first
        self._stopped = threading.Event()
        # A daemon thread, so that an ending driver does not wait for it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; once only."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the current work and stop the thread."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._first
        while not self._stopped.wait(pause):
            pause = self._every
            try:
                self._work()
            except Exception as error:  # noqa: BLE001 - nobody else sees an error of this thread
                _log.warning("%s failed and continues: %s", self._name, error)
