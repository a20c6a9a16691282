"""The queries that a manager keeps: started, watched, started again, and stopped between batches.

A query that cannot be started, or that fails, is so alone: its error is kept and shown, and the
next refresh starts it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql.streaming.query import StreamingQuery

from pyspark_ignis.settlement import Handler
from queue_core.errors import BadOption
from queue_core.model import QueueInfo
from queue_core.names import check_queue

#: A handler, or a dict of arguments of `consume`, of which one is ``handler``.
Assignment: TypeAlias = Handler | Mapping[str, Any]

#: Seconds between two looks at a query that is to be stopped.
_LOOK_SECONDS = 0.02
#: What the manager says to `consume` itself.
_TAKEN = ("spark", "queue", "path", "catalog", "storage", "checkpoint")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """How it stands with a queue that has a handler."""

    #: ``running``; ``paused``, by a concurrency of 0; ``failed``, until the next refresh; ``ended``
    #: by itself, as its trigger says; ``absent`` from the store; ``deactivated``; ``stopped``.
    status: str
    #: The query, if one was started.
    query: StreamingQuery | None = None
    #: How often one was started.
    starts: int = 0
    #: What it failed with last.
    error: Exception | None = None

    def __str__(self) -> str:
        told = str(self.error).partition("\n")[0]
        return self.status if self.error is None else f"{self.status} ({told})"


class ManagedQuery:
    """The query of one queue."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        #: What the query was started for.
        self._shape: tuple[int, int] | None = None
        #: Why there should be no query; None: there should be one.
        self._absence: str | None = "stopped"
        self._paused = False
        self._query: StreamingQuery | None = None
        self._starts = 0
        self._error: Exception | None = None

    @property
    def running(self) -> StreamingQuery | None:
        """The query, while it is running."""
        return self._query if self._query is not None and self._query.isActive else None

    def attend(self, info: QueueInfo) -> None:
        """See to it that a query is running, and knows the queue's columns."""
        # A dropped queue may have been made anew, under the same name.
        shape = (info.id, info.schema_version)
        self._absence, self._paused = None, info.settings.concurrency == 0
        if self.running is not None:
            if shape == self._shape:
                return
            self.running.stop()
        self._note_failure()
        try:
            self._query = self._start()
        except Exception as error:  # noqa: BLE001 - the other queues go on, and the state tells
            _log.warning("the query of queue %s cannot be started: %s", info.name, error)
            self._query, self._error = None, error
            return
        self._shape = shape
        self._starts += 1

    def leave(self, absence: str) -> None:
        """Stop, at once; *absence* is from now on the status."""
        self._absence = absence
        self._note_failure()
        if self.running is not None:
            self.running.stop()

    def state(self) -> QueueState:
        """How it stands now."""
        self._note_failure()
        return QueueState(
            status=self._status(), query=self._query, starts=self._starts, error=self._error
        )

    def _status(self) -> str:
        if self._absence is not None:
            return self._absence
        if self.running is not None:
            return "paused" if self._paused else "running"
        if self._query is None or self._query.exception() is not None:
            return "failed"
        return "ended"

    def _note_failure(self) -> None:
        if self._query is not None and not self._query.isActive:
            self._error = self._query.exception() or self._error


def arguments(handlers: Mapping[str, Assignment]) -> dict[str, dict[str, Any]]:
    """What is said of each queue, as arguments of `consume`; raises `BadName`, `BadOption`."""
    return {check_queue(queue): _arguments(queue, given) for queue, given in handlers.items()}


def stop_between_batches(queries: Collection[StreamingQuery], grace: float) -> None:
    """
    Stop queries, each when the micro-batch that it works on is done.

    After *grace* seconds without waiting: what is then in flight stays so, and is handled again
    when the query is started anew.
    """
    end = time.monotonic() + grace
    left = [(query, _done(query)) for query in queries]
    while left:
        late = time.monotonic() >= end
        rest = []
        for query, done in left:
            if late or not query.isActive or _is_idle(query) or _done(query) != done:
                query.stop()
            else:
                rest.append((query, done))
        left = rest
        if left:
            time.sleep(_LOOK_SECONDS)


def _arguments(queue: str, given: Assignment) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return {"handler": given}
    if "handler" not in given:
        raise BadOption(f"handlers[{queue!r}]: give a handler, or a dict with 'handler' in it")
    for name in given:
        if name in _TAKEN:
            raise BadOption(f"handlers[{queue!r}]: {name!r} is the manager's to say")
    # Arguments that consume does not know are options of the source, which it checks.
    return dict(given)


def _done(query: StreamingQuery) -> int | None:
    """The last micro-batch that is done."""
    progress = query.lastProgress
    return None if progress is None else progress.batchId


def _is_idle(query: StreamingQuery) -> bool:
    return not query.status["isDataAvailable"]
