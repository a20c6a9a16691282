"""Why messages were sidelined: a kind of one word, and a reason of any text."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from queue_core.errors import BadOutcome
from queue_core.values.names import is_kind
from queue_core.values.schema import TIMESTAMP

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
#: The ends of exception traces, for some of the messages that have a reason.
TRACES = pa.schema([("message_id", pa.int64()), ("trace", pa.string())])
#: Kinds and reasons, as the store reports them.
FAILURE_LOG = pa.schema(
    [
        *REASONS,
        #: How often the message had failed before: 0 at first.
        pa.field("attempt", pa.int32()),
        #: The consumer that held the message.
        pa.field("consumer", pa.string()),
        pa.field("failed_at", TIMESTAMP),
    ]
)
#: Characters of a reason that are kept.
REASON_LENGTH = 2000
#: Characters of a trace that are kept.
TRACE_LENGTH = 6000


@cache
def no_reasons() -> pa.Table:
    """Return `REASONS` without a row."""
    return REASONS.empty_table()


@cache
def no_traces() -> pa.Table:
    """Return `TRACES` without a row."""
    return TRACES.empty_table()


def check_kind(kind: str) -> str:
    """Return *kind* if it is a valid kind of failure; raises `BadOutcome`."""
    if not isinstance(kind, str) or not is_kind(kind):
        raise BadOutcome(
            f"kind={kind!r}: use one word of lower-case letters, digits and '_', at most 32 in all"
        )
    return kind


def check_reasons(reasons: pa.Table) -> None:
    """Raise `BadOutcome` unless a table has the columns of `REASONS`, with valid values."""
    check_table("reasons", reasons, REASONS)
    if not reasons.num_rows:
        return
    # Not at the top: a query waits for imports, and few messages fail.
    import pyarrow.compute as pc

    for kind in pc.unique(reasons.column("kind").drop_null()).to_pylist():
        check_kind(kind)
    longest = pc.max(pc.utf8_length(reasons.column("reason"))).as_py() or 0
    if longest > REASON_LENGTH:
        raise BadOutcome(f"a reason has {longest} characters; {REASON_LENGTH} are kept: cut it")


def traces_of(ids: pa.Array | pa.ChunkedArray, traces: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the `TRACES` of the messages that have one, each cut to its end."""
    table = pa.table([ids, traces], schema=TRACES).filter(traces.is_valid())
    if not table.num_rows:
        return no_traces()
    import pyarrow.compute as pc

    ends = pc.utf8_slice_codeunits(table.column("trace"), -TRACE_LENGTH)
    # PostgreSQL keeps no null characters in texts.
    return table.set_column(1, "trace", pc.replace_substring(ends, "\0", "\\x00"))


def check_table(name: str, table: pa.Table, schema: pa.Schema) -> None:
    """Raise `BadOutcome` unless a field of a settlement has a schema, and an id in each row."""
    if not isinstance(table, pa.Table) or not table.schema.equals(schema):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise BadOutcome(f"{name}: expected a pyarrow table with the columns {columns}")
    if table.column("message_id").null_count:
        raise BadOutcome(f"{name} has a row without a message_id")


def readable(reason: str) -> str:
    """Return a reason as it is stored: cut to length, with invalid characters escaped."""
    # A reason can quote a file name, whose bytes need not be valid characters.
    return escaped(reason[:REASON_LENGTH])[:REASON_LENGTH]


def escaped(text: str) -> str:
    """Return a text with its invalid characters escaped."""
    return text.encode(errors="backslashreplace").decode()


def reason_of(error: BaseException) -> str:
    """Return the reason for an exception, such as ``ValueError: no such customer``."""
    kind, message = type(error).__name__, message_of(error)
    return readable(f"{kind}: {message}" if message else kind)


def message_of(error: BaseException) -> str:
    """Return the text of an exception, or that it has none that can be shown."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the exception's own text may fail as well
        return "(its message cannot be shown)"
