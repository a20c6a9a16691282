"""`Loop`: a thread that repeats its work until it is stopped, even after errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from queue_core.support.outage_log import OutageLog

_log = logging.getLogger(__name__)


class Loop:
    """
    A thread that calls *work* again and again.

    It waits *first* seconds before the first call, and then after each call as many as *work*
    returned, or *every* if that is None. It logs an error, and tries again after *retry* seconds.
    *first* and *retry* are *every* by default (*retry*: 1 for 0). At its end, it calls *at_end*.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], float | None],
        *,
        every: float = 0.0,
        first: float | None = None,
        retry: float | None = None,
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._name = name
        self._work = work
        self._every = every
        self._first = every if first is None else first
        self._retry = every or 1.0 if retry is None else retry
        self._at_end = at_end
        self._is_ending = False
        self._bell = threading.Event()
        # A daemon thread: Spark ends its processes without notice, and nobody waits for a thread.
        name = f"ignis-{name.replace(' ', '-')}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; once only. Raises `RuntimeError` if no thread can be started."""
        try:
            self._thread.start()
        except BaseException as error:
            if not isinstance(error, RuntimeError):  # After an interrupt, the thread may run.
                self.end()
            raise

    def wake(self) -> None:
        """Call the work at once, or once more after the call in progress."""
        self._bell.set()

    def sleep(self, seconds: float) -> None:
        """Wait within the work, until the loop is to end or is woken."""
        self._bell.wait(seconds)

    def end(self) -> None:
        """Have the thread end after the call in progress; the work itself may call this."""
        self._is_ending = True
        self._bell.set()

    def stop(self, timeout: float | None = None) -> None:
        """End the thread, and wait for the call in progress, *timeout* seconds at most."""
        self.end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        wait: float | None = self._first
        outage = OutageLog(_log, {"loop": self._name})
        while True:
            self._bell.wait(self._every if wait is None else wait)
            self._bell.clear()
            if self._is_ending:
                self._at_end()
                return
            try:
                wait = self._work()
                outage.over(f"{self._name}: it works again")
            except Exception as error:  # noqa: BLE001 - nobody else sees an error of this thread
                wait = self._retry
                outage.failed(f"{self._name}: {error}; tried again in {wait:g} seconds")
