"""Work that is done again and again, in a thread of its own, whatever it runs into."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class PeriodicThread:
    """Calls *work* every so many seconds, for the first time after *first*, until it is stopped."""

    def __init__(
        self, name: str, work: Callable[[], object], every: float, first: float | None = None
    ) -> None:
        self._name = name
        self._work = work
        self._every = every
        self._first = every if first is None else first
        self._stopped = threading.Event()
        # A driver that ends does not wait for it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; once only."""
        self._thread.start()

    def stop(self) -> None:
        """Wait for the work that is being done, and do no more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._first
        while not self._stopped.wait(pause):
            pause = self._every
            try:
                self._work()
            except Exception as error:  # noqa: BLE001 - nobody else hears what a thread runs into
                _log.warning("%s failed, and goes on: %s", self._name, error)
