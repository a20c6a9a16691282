"""Readers: the log of a queue, who reads it, and who keeps what of it, as the views show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import Connection

from queue_core.values.model import QueueInfo
from queue_core.watching import views

#: A row of the view ``subscriptions``, with the bytes that the log ``keeps`` for it.
Reader: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a queue."""

    messages: int
    #: Uncompressed.
    bytes: int
    #: When the first of its messages came; null: it has none.
    oldest_at: datetime | None
    #: The bytes that its setting keeps.
    by_setting: int
    #: The bytes that it keeps for snapshots, by their names.
    by_snapshots: Mapping[str, int]


def of_queue(connection: Connection, queue: QueueInfo) -> tuple[Log | None, tuple[Reader, ...]]:
    """Return the log of a queue and its readers; of a subscription, no log and its own row."""

    def rows(view: str) -> list[dict[str, Any]]:
        return list(views.read(connection, view, queue, "").to_pylist())

    readers = rows("subscriptions")
    if queue.settings.log is None:
        return None, tuple(readers)
    kept = {(row["kept_by"], row["subscription"]): row["bytes"] for row in rows("retained")}
    shards = rows("logs")
    log = Log(
        sum(row["messages"] for row in shards),
        sum(row["bytes"] for row in shards),
        min((row["oldest_at"] for row in shards if row["oldest_at"]), default=None),
        kept.pop(("log", None)),
        {name: size for (by, name), size in kept.items() if by == "snapshot"},
    )
    return log, tuple(
        row | {"keeps": kept.get(("subscription", row["queue"]), 0)} for row in readers
    )
