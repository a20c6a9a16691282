"""A thread that moves messages back to main within a second of their time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queue_core.upkeep.tasks.retries import Retries

#: The most seconds between two looks. A message may get an earlier time than all others meanwhile.
LOOK_SECONDS = 0.5
#: Seconds until the next look after an error.
_ERROR_SECONDS = 5.0

_log = logging.getLogger(__name__)


class RetryThread:
    """
    Runs `Retries`; a thread of its own, since other tasks may take minutes.

    Args:
        make: Makes the `Retries`; called in the thread, so that nothing waits for its imports.
        names: Returns the names of the queues; None: all.
        start: Seconds until the first look.
    """

    def __init__(
        self,
        make: Callable[[], Retries],
        names: Callable[[], Collection[str] | None],
        *,
        start: float = LOOK_SECONDS,
    ) -> None:
        self._make = make
        self._names = names
        self._first = start
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ignis-retries", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End after the work in progress."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        wait, retries = self._first, None
        while not self._ended.wait(wait):
            try:
                retries = retries or self._make()
                _, left = retries.run(self._names())
                wait = min(left, LOOK_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it is, the other work goes on
                _log.warning("retries: %s; tried again in %g seconds", error, _ERROR_SECONDS)
                wait = _ERROR_SECONDS
