"""Payloads: objects that a handler takes instead of rows, of JSON text or of all columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from queue_core.handling.objects.message_class import MessageClass
from queue_core.handling.objects.python_rows import Unreadable, rows_of
from queue_core.handling.payload_types import Reader
from queue_core.values.failure_kinds import reason_of

#: The arguments of one call of the handler; it is not called with an `Unreadable`.
Call: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Payload:
    """The column that holds the JSON text, and the objects that are made of it."""

    column: str
    #: Makes an object of the user's type; None for the JSON value as it is.
    read: Reader | None = None
    #: Whether the handler takes the other columns too, as a dict.
    with_metadata: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that the objects are made of."""
        return [self.column]

    def calls(self, batch: pa.RecordBatch) -> list[Call]:
        """Return the arguments of the call for each message."""
        columns = batch if self.with_metadata else batch.select([self.column])
        return [self._call(row) for row in rows_of(columns)]

    def _call(self, row: dict[str, Any] | Unreadable) -> Call:
        if isinstance(row, Unreadable):
            return (row,)
        text = row.pop(self.column)
        if text is None:
            return (Unreadable(f"{self.column} is null"),)
        try:
            # JSON in bytes is UTF-8; json.loads would take other encodings too.
            message = json.loads(text if isinstance(text, str) else str(text, "utf-8"))
            if self.read is not None:
                message = self.read(message)
        except Exception as error:  # noqa: BLE001 - a user's type may raise anything
            return (Unreadable(reason_of(error)),)
        return (message, row) if self.with_metadata else (message,)


@dataclass(frozen=True, slots=True)
class ObjectPayload:
    """Objects of a user's class, whose fields are columns of the queue."""

    kind: MessageClass
    #: Whether the handler takes the other columns too, as a dict.
    with_metadata: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that the objects are made of."""
        return list(self.kind.schema.names)

    def calls(self, batch: pa.RecordBatch) -> list[Call]:
        """Return the arguments of the call for each message."""
        objects = self.kind.objects_of(batch)
        if not self.with_metadata:
            return [(one,) for one in objects]
        others = [name for name in batch.schema.names if name not in self.columns]
        return [
            (row,) if isinstance(row, Unreadable) else (one, row)
            for one, row in zip(objects, rows_of(batch.select(others)), strict=True)
        ]
