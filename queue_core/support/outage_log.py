"""The log of an outage: a line at its beginning, one a minute, and one at its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

#: Seconds between two lines of an outage.
EVERY_SECONDS = 60.0


class OutageLog:
    """The log of what fails again and again, and of its end. Thread-safe."""

    def __init__(self, log: logging.Logger, fields: Mapping[str, object]) -> None:
        self._log = log
        self._fields = dict(fields)
        self._lock = threading.Lock()
        #: When the outage began, and when a line was written last; None: there is none.
        self._times: tuple[float, float] | None = None
        self._kind: object = None

    def failed(self, text: str, kind: object = None) -> None:
        """Note a failure; write *text* once a minute, and when failures are of another *kind*."""
        with self._lock:
            now = time.monotonic()
            began, last = self._times or (now, None)
            if last is not None and now - last < EVERY_SECONDS and kind == self._kind:
                return
            self._times, self._kind = (began, now), kind
        since = "" if last is None else f" (for {now - began:.0f} s)"
        self._log.warning("%s%s", text, since, extra=self._fields | {"seconds": now - began})

    def over(self, text: str) -> None:
        """Write *text* with the duration, if there was an outage."""
        with self._lock:
            times, self._times = self._times, None
        if times is not None:
            seconds = time.monotonic() - times[0]
            self._log.info(
                "%s after %.0f s", text, seconds, extra=self._fields | {"seconds": seconds}
            )
