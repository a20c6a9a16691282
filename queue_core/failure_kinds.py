"""Why messages were sidelined: a kind, which is one word, and a reason, which is any text."""

from __future__ import annotations

import re

import pyarrow as pa

from queue_core.errors import BadOutcome
from queue_core.schema import TIMESTAMP

#: It was said of the message that it failed; what is sidelined and has no other kind.
REJECTED = "rejected"
#: Of a handler: it did not say what becomes of the message.
UNDECIDED = "undecided"
#: Of a handler: it raised an exception, which the reason tells.
EXCEPTION = "exception"
#: Of a handler: it took too long.
TIMEOUT = "timeout"
#: The message could not be read, so that no handler has seen it.
UNREADABLE = "unreadable"
#: It was fired too long ago and never finished.
SWEPT = "swept"
#: It was fired too often and never finished.
DELIVERIES = "deliveries"

#: What whoever settles messages says of those that are sidelined.
REASONS = pa.schema(
    [
        pa.field("message_id", pa.int64()),
        pa.field("kind", pa.string()),
        #: Null where the kind says it all.
        pa.field("reason", pa.string()),
    ]
)
#: What is kept of each of them once it is sidelined.
FAILURES = pa.schema(
    [
        *REASONS,
        #: How often the message had failed before: 0 at first.
        pa.field("attempt", pa.int32()),
    ]
)
#: What is told of each failure.
FAILURE_LOG = pa.schema(
    [
        *FAILURES,
        #: The consumer that gave the message up.
        pa.field("consumer", pa.string()),
        pa.field("failed_at", TIMESTAMP),
    ]
)
#: Characters of a reason that are kept.
REASON_LENGTH = 2000

_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")


def check_kind(kind: str) -> str:
    """Return *kind* if a failure may be of it; raises `BadOutcome`."""
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise BadOutcome(
            f"kind={kind!r}: use one word of lower-case letters, digits and '_', at most 32 in all"
        )
    return kind


def readable(reason: str) -> str:
    """A reason as it is kept: cut, and with nothing in it that is no character."""
    # What was said of a file may hold bytes that are no characters.
    return reason[:REASON_LENGTH].encode(errors="backslashreplace").decode()


def reason_of(error: Exception) -> str:
    """The reason that an exception gives: ``ValueError: no such customer``."""
    kind = type(error).__name__
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the exception's own text may fail as well
        message = "(its message cannot be shown)"
    return readable(f"{kind}: {message}" if message else kind)
