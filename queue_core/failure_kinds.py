"""Why messages were sidelined: a kind of one word, and a reason of any text."""

from __future__ import annotations

import pyarrow as pa

from queue_core.errors import BadOutcome
from queue_core.names import is_kind
from queue_core.schema import TIMESTAMP

#: A consumer sidelined the message; the kind by default.
REJECTED = "rejected"
#: A handler returned no outcome for the message.
UNDECIDED = "undecided"
#: A handler raised an exception; the reason has its text.
EXCEPTION = "exception"
#: A handler took too long.
TIMEOUT = "timeout"
#: The payload of the message could not be read, so no handler got it.
UNREADABLE = "unreadable"
#: The message was fired too long ago and never finished.
SWEPT = "swept"
#: The message was fired too often and never finished.
DELIVERIES = "deliveries"
#: The process that handled the message ended, several times, and twice it held this message alone.
KILLED = "killed"
#: A person sidelined the message, which waited.
BY_HAND = "by_hand"

#: Kinds and reasons of sidelined messages, as a settlement has them.
REASONS = pa.schema(
    [
        pa.field("message_id", pa.int64()),
        pa.field("kind", pa.string()),
        #: Null if the kind says enough.
        pa.field("reason", pa.string()),
    ]
)
#: The same, as the catalog stores them.
FAILURES = pa.schema(
    [
        *REASONS,
        #: How often the message had failed before: 0 at first.
        pa.field("attempt", pa.int32()),
    ]
)
#: The same, as the store reports them.
FAILURE_LOG = pa.schema(
    [
        *FAILURES,
        #: The consumer that held the message.
        pa.field("consumer", pa.string()),
        pa.field("failed_at", TIMESTAMP),
    ]
)
#: Characters of a reason that are kept.
REASON_LENGTH = 2000


def check_kind(kind: str) -> str:
    """Return *kind* if it is a valid kind of failure; raises `BadOutcome`."""
    if not isinstance(kind, str) or not is_kind(kind):
        raise BadOutcome(
            f"kind={kind!r}: use one word of lower-case letters, digits and '_', at most 32 in all"
        )
    return kind


def readable(reason: str) -> str:
    """Return a reason as it is stored: cut to length, with invalid characters escaped."""
    # A reason can quote a file name, whose bytes need not be valid characters.
    return reason[:REASON_LENGTH].encode(errors="backslashreplace").decode()


def reason_of(error: BaseException) -> str:
    """Return the reason for an exception, such as ``ValueError: no such customer``."""
    kind = type(error).__name__
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the exception's own text may fail as well
        message = "(its message cannot be shown)"
    return readable(f"{kind}: {message}" if message else kind)
