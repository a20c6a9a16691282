"""Trouble: an error that keeps a pool from taking messages of a queue, for now.

While the catalog or the storage is unavailable, workers take turns to try again, one at a time and
not more often than once in `RETRY_SECONDS`. The first error is logged, each later one that differs
from the last, one a minute, and the end with its duration. Until an attempt succeeds, the queue may
have messages that nobody has seen.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queue_core.errors import Damaged, DamagedCatalog, DamagedSegment, IgnisError, Unavailable
from queue_core.pool.timings import RETRY_SECONDS
from queue_core.support.outage_log import OutageLog

#: The location of a segment in an error, which names another one at each attempt.
_LOCATION = re.compile(r"\bsegments/\S+")
#: Errors after which a pool goes on. A newer format of the catalog ends it, since it would stay.
PASSING = (Unavailable, DamagedCatalog, DamagedSegment)

_log = logging.getLogger(__name__)


class Trouble:
    """The present trouble with *queue*, if any; *on_over* is called at its end. Thread-safe."""

    def __init__(self, queue: str, on_over: Callable[[], None]) -> None:
        #: The name of the queue.
        self.queue = queue
        self._on_over = on_over
        self._outage = OutageLog(_log, {"queue": queue})
        self._lock = threading.Lock()
        #: The error of the last attempt; None if it succeeded.
        self.error: IgnisError | None = None
        self._failed_at = 0.0

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Note the outcome of the block; raise the last error instead if a retry is too early."""
        last = self.error
        if isinstance(last, Unavailable) and time.monotonic() - self._failed_at < RETRY_SECONDS:
            raise last.with_traceback(None)
        try:
            yield
        except (Unavailable, Damaged) as error:
            self.failed(error)
            raise
        self.over()

    def failed(self, error: IgnisError, doing: str = "take") -> None:
        """Note an error; the pool cannot *take* or settle messages."""
        with self._lock:
            self.error, self._failed_at = error, time.monotonic()
        text = f"queue {self.queue!r}: the pool cannot {doing} messages, and tries again: {error}"
        self._outage.failed(text, (doing, *_kind(error)))

    def over(self) -> None:
        """Note that the pool has taken or settled messages."""
        if self.error is None:
            return
        with self._lock:
            was, self.error = self.error, None
        if was is not None:
            self._outage.over(f"queue {self.queue!r}: the pool takes messages again")
            # Consumers that failed count as having found nothing, until the next arrival.
            self._on_over()


def _kind(error: IgnisError) -> tuple[type[IgnisError], str]:
    """Return what two errors have in common if only their segments differ."""
    return type(error), _LOCATION.sub("", str(error))
