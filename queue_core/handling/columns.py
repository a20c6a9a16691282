"""The columns that a handler gets: the same rules for pools and for Spark queries."""

from __future__ import annotations

from collections.abc import Sequence

from queue_core.errors import BadOption, SchemaMismatch
from queue_core.handling.payloads import ObjectPayload, Payload
from queue_core.values.names import listed, nearest
from queue_core.values.schema import METADATA

#: The metadata columns that handlers get by default. The times are left out, since a Python handler
#: pays for each value, and few use them.
DEFAULT_METADATA = ("_message_id", "_queue", "_attempt")


def handler_columns(
    names: Sequence[str],
    columns: Sequence[str] | None,
    payload: Payload | ObjectPayload | None,
) -> list[str]:
    """
    Return the columns to read for a handler: those that it gets, and the message's id.

    Args:
        names: The columns of the queue, with or without its metadata.
        columns: The columns that the user asks for; None for the queue's own and
            `DEFAULT_METADATA`.
        payload: The payload, if the handler is given one instead of rows.

    Raises:
        BadOption: *columns* is a text, or the payload leaves no room for other columns.
    """
    if isinstance(columns, str):
        raise BadOption(f"columns={columns!r}: give a list of column names")
    if payload is not None and not payload.with_metadata:
        if columns is not None:
            raise BadOption(
                "columns: a handler of objects is given no other columns; use with_metadata=True"
            )
        given = []
    elif columns is None:
        given = [*(name for name in names if name not in METADATA.names), *DEFAULT_METADATA]
    else:
        given = list(columns)
    if payload is not None:
        given += payload.columns
    return list(dict.fromkeys([*given, "_message_id"]))


def check_columns(queues: Sequence[str], names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise `SchemaMismatch` for the first of *columns* that is not among the queues' *names*."""
    for column in columns:
        if column not in names:
            raise SchemaMismatch(
                f"queue {listed(queues, quoted=True)} has no column {column!r}"
                f"{nearest(str(column), names) or '.'} Columns: {', '.join(names)}"
            )


def check_payload(column: str, kind: str, *, is_text: bool) -> None:
    """Raise `BadOption` for a payload column whose type, called *kind*, holds no text."""
    if not is_text:
        raise BadOption(f"payload={column!r} is {kind}, not string or binary")
