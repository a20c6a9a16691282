"""Commit messages: plain values that a task reports to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ignis_sink.target import Target
from queue_core.values.model import Staged

if TYPE_CHECKING:
    # Not at the top: a query that loads waits for imports, and settles nothing.
    from queue_core.handling.gate import Tally
    from queue_core.values.outcomes import Settlement

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class LoadMessage(WriterCommitMessage):
    """The segments that a task has staged, and their target."""

    target: Target
    staged: tuple[Staged, ...]
    query_id: str | None
    #: In a streaming query: the number of rows of the task, and their digest.
    rows: int = 0
    digest: int = 0


@dataclass
class SettleMessage(WriterCommitMessage):
    """The outcomes that a task has collected."""

    settlement: Settlement
    query_id: str | None
    #: The name of a handler that returned nothing in this task.
    refusal: str | None = None
    #: The calls of the handler in this task, if it has a breaker.
    tally: Tally | None = None


def current_query() -> str | None:
    """Return the id of the streaming query of this task; the driver does not know it."""
    return _local_property(_QUERY_ID)


def current_batch() -> int | None:
    """Return the number of the micro-batch of this task; None outside of a streaming query."""
    number = _local_property(_BATCH_ID)
    return None if number is None else int(number)


def _local_property(name: str) -> str | None:
    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None
