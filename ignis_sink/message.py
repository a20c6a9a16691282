"""Commit messages: what a task tells the driver, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ignis_sink.target import Target
from queue_core.model import Staged
from queue_core.outcomes import Settlement

_QUERY_ID = "sql.streaming.queryId"


@dataclass
class LoadMessage(WriterCommitMessage):
    """The segments that a task has staged, and for what."""

    target: Target
    staged: tuple[Staged, ...]
    query_id: str | None


@dataclass
class SettleMessage(WriterCommitMessage):
    """The outcomes that a task has gathered."""

    settlement: Settlement
    query_id: str | None


def current_query() -> str | None:
    """The id of the streaming query whose task this is; known to tasks, and not to the driver."""
    context = TaskContext.get()
    return context.getLocalProperty(_QUERY_ID) if context is not None else None
