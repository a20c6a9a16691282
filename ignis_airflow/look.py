"""`QueueLook`: what triggers and sensors see of a queue, and `Arrivals`, which says what to report.

A report takes no message, so it may be repeated: each triggerer that starts reports anew, and
messages that nobody has fired are reported again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple

#: The fewest seconds between two reports of new messages.
NEW_SECONDS = 1.0
#: Seconds after which messages that wait are reported again, although no new ones came.
AGAIN_SECONDS = 60.0


class QueueLook(NamedTuple):
    """A queue at one moment."""

    #: Messages that wait in main.
    waiting: int
    #: Messages that ever came into main, by a load, from the sideline, or in the log that it reads.
    came: int
    #: Messages that wait, are in flight, or are in the sideline and will be tried again.
    unfinished: int
    #: Returns whether a consumer would get a message now.
    may_fire: Callable[[], bool]
    #: How many of those that wait are still in the log of a subscription; some may not match.
    behind: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to handle; dead messages are left to a person."""
        if 0 < self.unfinished == self.behind:
            # Perhaps nobody fires any more, and the rest does not match the selector. `may_fire`
            # passes over it, so the next look finds none.
            self.may_fire()
        return self.unfinished == 0


class Arrivals:
    """Decides what to report: new messages at once, and those that still wait, once a minute."""

    def __init__(self) -> None:
        self._came: int | None = None
        self._reported_at = -inf

    def __call__(self, look: QueueLook) -> bool:
        """Return whether to report a look; a look that is reported counts as known."""
        if not look.waiting:
            return False
        now = time.monotonic()
        pause = AGAIN_SECONDS if look.came == self._came else NEW_SECONDS
        if now - self._reported_at < pause or not look.may_fire():
            return False
        self._came, self._reported_at = look.came, now
        return True
