"""The queries of a manager: started, watched, restarted, and stopped between micro-batches.

A query that fails, or cannot be started, does not affect the others: its error is kept and shown,
and the next refresh starts it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_ignis.settlement import Handler
from queue_core.errors import BadName, BadOption
from queue_core.handling.contract import MagazineHandler, arguments_of, check_signature, unwrapped
from queue_core.handling.results import is_refusal
from queue_core.values.model import QueueInfo
from queue_core.values.names import SIDELINE_SUFFIX, check_queue, listed

#: A handler, or a dict of arguments of `consume` that includes ``handler``.
Assignment: TypeAlias = Handler | MagazineHandler | Mapping[str, Any]

#: Seconds between two checks of a query that is being stopped.
_CHECK_SECONDS = 0.02
#: Arguments of `consume` that the manager passes itself.
_RESERVED = ("spark", "queue", "path", "catalog", "storage", "checkpoint")

#: The id and schema version of each queue of a query.
Shape: TypeAlias = tuple[tuple[int, int], ...]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The state of the query of one queue."""

    #: ``running``; ``paused``, by `QueueAdmin.pause` or a concurrency of 0; ``failed``, until the
    #: manager restarts it; ``ended``, because its trigger ends; ``absent``: the store has no such
    #: queue; ``deactivated``; or ``stopped`` with the manager.
    status: str
    #: The latest query; None if none was started.
    query: StreamingQuery | None = None
    #: How often a query was started.
    starts: int = 0
    #: The error of the latest failure, if any.
    error: Exception | None = None

    def __str__(self) -> str:
        reason = str(self.error).partition("\n")[0]
        return self.status if self.error is None else f"{self.status} ({reason})"


def shape_of(infos: Collection[QueueInfo]) -> Shape:
    """Return what a query of these queues depends on: when it changes, the query is restarted."""
    # A dropped queue may have been created again under the same name.
    return tuple(sorted((info.id, info.schema_version) for info in infos))


class ManagedQuery:
    """The query of a queue, or of several."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        #: The id and schema version of each queue when the query was started.
        self.shape: Shape | None = None
        #: The status that explains why no query should run; None: one should run.
        self._absence: str | None = "stopped"
        self._query: StreamingQuery | None = None
        self._starts = 0
        self._error: Exception | None = None

    @property
    def running(self) -> StreamingQuery | None:
        """The query, while it is running."""
        return self._query if self._query is not None and self._query.isActive else None

    def attend(self, infos: Collection[QueueInfo]) -> None:
        """Start the query, or restart it if a queue was created again or has new columns."""
        shape = shape_of(infos)
        self._absence = None
        if (query := self.running) is not None:
            if shape == self.shape:
                return
            query.stop()
        self._note_failure()
        last = None if self._query is None else self._query.exception()
        if shape == self.shape and last is not None and is_refusal(last):
            # The handler was refused. Each further start would handle and sideline a message.
            return
        try:
            self._query = self._start()
        except Exception as error:  # noqa: BLE001 - the other queues continue; `state` reports it
            names = f"queue {listed([info.name for info in infos])}" if infos else "the side tasks"
            _log.warning("the query of %s cannot be started: %s", names, error)
            self._query, self._error = None, error
            return
        self.shape = shape
        self._starts += 1

    def leave(self, absence: str) -> None:
        """Stop the query at once; *absence* becomes its status."""
        self._absence = absence
        self._note_failure()
        if (query := self.running) is not None:
            query.stop()

    def state(self, paused: bool = False) -> QueueState:
        """Return the current state; *paused* says whether the queue is paused now."""
        self._note_failure()
        return QueueState(
            status=self._status(paused), query=self._query, starts=self._starts, error=self._error
        )

    def _status(self, paused: bool) -> str:
        if self._absence is not None:
            return self._absence
        if self.running is not None:
            return "paused" if paused else "running"
        if self._query is None or self._query.exception() is not None:
            return "failed"
        return "ended"

    def _note_failure(self) -> None:
        if self._query is not None and not self._query.isActive:
            self._error = self._query.exception() or self._error


def consume_arguments(handlers: Mapping[str, Assignment]) -> dict[str, dict[str, Any]]:
    """Return the arguments of `consume` by queue; raises `BadName` and `BadOption`."""
    for queue in handlers:
        if check_queue(queue).endswith(SIDELINE_SUFFIX):
            raise BadName(
                f"queue {queue!r}: handlers are for queues, not for their sidelines; use consume() "
                "for a sideline"
            )
    return {queue: _arguments(queue, given) for queue, given in handlers.items()}


def stop_between_batches(queries: Collection[StreamingQuery | None], grace: float) -> None:
    """
    Stop each query when its current micro-batch is done, or after *grace* seconds; None: none runs.

    Messages of an unfinished micro-batch stay in flight; they are handled again when the query is
    started again.
    """
    end = time.monotonic() + grace
    left = [(query, _done(query)) for query in queries if query is not None]
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
            time.sleep(_CHECK_SECONDS)


def _arguments(queue: str, given: Assignment) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        given = {"handler": given}
    if "handler" not in given:
        raise BadOption(f"handlers[{queue!r}]: give a handler, or a dict that includes 'handler'")
    for name in given:
        if name in _RESERVED:
            raise BadOption(f"handlers[{queue!r}]: remove {name!r}; the manager sets it")
    # `consume` checks the others; it treats unknown ones as options of the source.
    function, _ = unwrapped(given["handler"], ())
    if callable(function) and not isinstance(function, Column):
        with_metadata = bool(given.get("with_metadata"))
        try:
            check_signature(function, arguments_of(with_metadata=with_metadata))
        except BadOption as error:
            raise BadOption(f"handlers[{queue!r}]: {error}") from None
    return dict(given)


def _done(query: StreamingQuery) -> int | None:
    """Return the number of the last finished micro-batch."""
    progress = query.lastProgress
    return None if progress is None else progress.batchId


def _is_idle(query: StreamingQuery) -> bool:
    return not query.status["isDataAvailable"]
