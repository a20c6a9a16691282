"""Commit messages: plain values that a task reports to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ignis_sink.target import Target
from queue_core.breakers.tallies import Tally
from queue_core.model import Staged
from queue_core.outcomes import Settlement

_QUERY_ID = "sql.streaming.queryId"


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
    #: The calls of the handler in this task, by the keys of its breaker.
    tallies: dict[str, Tally] = field(default_factory=dict)


def current_query() -> str | None:
    """Return the id of the streaming query of this task; the driver does not know it."""
    context = TaskContext.get()
    return context.getLocalProperty(_QUERY_ID) if context is not None else None
