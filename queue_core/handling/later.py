"""`Later`: a handler puts its message off."""

from __future__ import annotations

from queue_core.errors import BadOption
from queue_core.values.backoff import LONGEST_SECONDS
from queue_core.values.durations import FORM, Duration, in_seconds, is_seconds


class Later(Exception):
    """
    Raised by a handler to get its message again later; this is no failure.

    The message waits in the sideline, and returns to main when the time has passed, counted from
    its settlement. The call counts neither as an attempt nor as a delivery, unless *seconds* is 0.
    A batch handler puts its whole batch off; to put off only some messages, it returns a table with
    ``outcome`` ``reload`` and ``delay``.

    A handler of a sideline cannot put messages off: its consumers fire messages before their time,
    so they would get the message again at once. Its pool or its query ends with `BadOutcome`.

    Args:
        seconds: For how long the message waits, 0 or more: seconds, a text such as ``"15m"``, or a
            ``timedelta``.
        reason: Any text, for the log.

    Raises:
        BadOption: *seconds* is out of range.
    """

    def __init__(self, seconds: Duration, reason: str | None = None) -> None:
        wait = in_seconds(seconds)
        if not is_seconds(wait) or wait > LONGEST_SECONDS:
            raise BadOption(f"Later({seconds!r}): use {FORM}, from 0 to a hundred years")
        super().__init__(seconds, reason)
        #: For how long the message waits, in seconds.
        self.seconds = float(wait)
        #: Why, for the log.
        self.reason = reason

    def __str__(self) -> str:
        return f"in {self.seconds:g} s" + (f": {self.reason}" if self.reason else "")
