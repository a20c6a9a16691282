"""One thread that reads the figures of the store while somebody looks at a page.

Pages take the latest figures at once, and however many people look, the catalog is read once in
three seconds. When nobody has looked for a while, the thread ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ignis_console.figures import Figures
from ignis_console.look import Look, ends_looks
from queue_core.errors import IgnisError

#: Seconds between two readings, and seconds without a look after which they end.
EACH_SECONDS = 3.0
IDLE_SECONDS = 15.0
#: Figures of this age are not shown as present ones: the look waits for new ones.
STALE_SECONDS = 8.0

_log = logging.getLogger(__name__)


class Poller:
    """Reads in a thread of its own, from a look until nobody has looked for some seconds."""

    def __init__(self, read: Callable[[], Figures], each: float = EACH_SECONDS) -> None:
        self._read = read
        self._each = each
        self._changed = threading.Condition()
        self._latest: Look[Figures] | None = None
        self._error: IgnisError | None = None
        self._rounds = 0
        self._reading = False
        self._hurry = False
        self._looked_at = 0.0
        self._running = False
        self._closed = False

    def prepare(self) -> None:
        """Read once without waiting, so that the first look finds figures."""
        with self._changed:
            self._looked_at = time.monotonic()
            self._start()

    def look(self, *, fresh: bool = False) -> Look[Figures]:
        """
        Return the latest figures; with *fresh*, those of a reading that begins after this call.

        If the catalog cannot be read, it returns the former figures with the error. Raises the
        error if there are none, and if the store is gone.
        """
        with self._changed:
            self._looked_at = time.monotonic()
            # A reading that has begun already may not see what the caller has just changed.
            wanted = self._rounds + (2 if self._reading and fresh else 1)
            self._hurry = self._hurry or fresh
            self._start()
            self._changed.notify_all()
            latest = self._latest
            if fresh or latest is None or latest.age > STALE_SECONDS:
                self._changed.wait_for(lambda: self._rounds >= wanted or self._closed, timeout=10)
            if self._latest is None:
                raise self._error or IgnisError("the console is being closed")
            if self._error is not None:
                if ends_looks(self._error):
                    raise self._error
                return Look(self._latest.seen, self._latest.read_at, str(self._error))
            return self._latest

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._running, timeout=10)

    def _start(self) -> None:
        if not self._running and not self._closed:
            self._running = True
            threading.Thread(target=self._run, name="ignis-console", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._reading, self._hurry = True, False
            begun = time.monotonic()
            found, failed = self._attempt()
            with self._changed:
                self._reading, self._error = False, failed
                if found is not None:
                    self._latest = Look(found, begun)
                self._rounds += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or self._hurry, self._each)
                idle = time.monotonic() - self._looked_at > IDLE_SECONDS
                if self._closed or idle:
                    self._running = False
                    self._changed.notify_all()
                    return

    def _attempt(self) -> tuple[Figures | None, IgnisError | None]:
        try:
            return self._read(), None
        except IgnisError as error:
            _log.warning("the figures cannot be read: %s", error)
            return None, error
        except Exception as error:  # noqa: BLE001 - the thread goes on, and the pages say so
            _log.exception("the figures cannot be read")
            return None, IgnisError(f"the figures cannot be read: {error}")
