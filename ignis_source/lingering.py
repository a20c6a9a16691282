"""Wait until a micro-batch is worth it: options `minMessagesPerTrigger` and `maxTriggerDelay`.

Source: Kafka's source, `minOffsetsPerTrigger` and `maxTriggerDelay`.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Linger:
    """
    Says whether enough messages wait, or have waited long enough.

    *at_least* is the number of messages, and *longest* the seconds after which fewer are taken.
    """

    def __init__(
        self, at_least: int, longest: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_least = at_least
        self._longest = longest
        self._clock = clock
        #: When the first messages since the last batch were seen to wait.
        self._since: float | None = None

    def is_over(self, waiting: float | None) -> bool:
        """Return whether to fire, while so many messages wait; None: an unknown number."""
        if waiting is None or waiting >= self._at_least:
            return True
        if not waiting:
            self._since = None
            return False
        if self._since is None:
            self._since = self._clock()
        return self._clock() - self._since >= self._longest

    def begin_again(self) -> None:
        """Note that messages were fired."""
        self._since = None
