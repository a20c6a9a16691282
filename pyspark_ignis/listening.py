"""A listener that reports the batches of all queries of a session that read from queues."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pyspark_ignis.settlement import METRICS

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """One batch of a query that reads from queues. What is not known is None."""

    #: The query's name, or its id.
    query: str
    #: The number of the batch.
    batch: int
    #: Messages that the batch read.
    rows: int
    #: Seconds that the batch took.
    seconds: float
    #: Messages that wait in the queues of the query.
    waiting: int | None
    #: Seconds since the oldest message at the head of a shard of main was loaded; None: none waits.
    oldest_age: float | None
    #: Messages of these queues that are in flight, at any consumer.
    in_flight: int | None
    #: Messages of these queues that wait in the sideline.
    sidelined_now: int | None
    #: Messages that the batch deleted, in a query of `consume`.
    deleted: int | None
    #: Messages that it sidelined.
    sidelined: int | None
    #: Messages that it deleted because their handler raised an exception that is ignored.
    ignored: int | None
    #: Messages that it reloaded.
    reloaded: int | None


def listener(report: Callable[[BatchReport], object] | None = None) -> StreamingQueryListener:
    """
    Return a listener that reports each batch of all queries of a session that read from queues.

    Add it once, with ``spark.streams.addListener(listener())``. The queries need no change. Spark
    calls it in a thread of the driver, after the batch.

    Args:
        report: Called with a `BatchReport`; its errors go to the log. By default, each report is a
            line of the logger ``pyspark_ignis.listening``, with the level INFO.

    Returns:
        The listener.
    """
    return _Listener(report or _to_log)


class _Listener(StreamingQueryListener):
    def __init__(self, report: Callable[[BatchReport], object]) -> None:
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the first batch says more."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report a batch."""
        try:
            found = _report_of(event.progress)
            if found is not None:
                self._report(found)
        except Exception:  # noqa: BLE001 - a callback may raise anything, and Spark only prints it
            _log.exception("query %s: its batch was not reported", event.progress.name)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Log the end of a query that failed."""
        if event.exception is not None:
            _log.error("query %s ended: %s", event.id, event.exception)


def _report_of(progress: StreamingQueryProgress) -> BatchReport | None:
    """Return the report of a batch; None if its query reads from no queue."""
    found = [each for each in map(_figures, progress.sources) if each is not None]
    if not found:
        return None
    outcomes: Mapping[str, Any] = {}
    if METRICS in progress.observedMetrics:
        outcomes = progress.observedMetrics[METRICS].asDict()
    ages = [each["oldest_age"] for each in found if each.get("oldest_age") is not None]
    return BatchReport(
        query=progress.name or str(progress.id),
        batch=progress.batchId,
        rows=progress.numInputRows,
        seconds=progress.batchDuration / 1000,
        waiting=_sum(found, "waiting"),
        oldest_age=max(ages, default=None),
        in_flight=_sum(found, "in_flight"),
        sidelined_now=_sum(found, "sidelined"),
        deleted=outcomes.get("deleted"),
        sidelined=outcomes.get("sidelined"),
        ignored=outcomes.get("ignored"),
        reloaded=outcomes.get("reloaded"),
    )


def _figures(source: Any) -> dict[str, Any] | None:
    """Return what a source of ignis reports; None for another one."""
    try:
        told = json.loads(source.latestOffset)
    except (TypeError, ValueError):
        return None
    known = isinstance(told, dict) and {"consumer", "ticket", "waiting"} <= told.keys()
    return told if known else None


def _sum(found: list[dict[str, Any]], name: str) -> int | None:
    values = [int(each[name]) for each in found if each.get(name) is not None]
    return sum(values) if len(values) == len(found) else None


def _to_log(report: BatchReport) -> None:
    parts = [f"read {report.rows:,} in {report.seconds:.1f} s"]
    for name in ("waiting", "in_flight", "deleted", "sidelined", "ignored", "reloaded"):
        if (value := getattr(report, name)) is not None:
            parts.append(f"{name} {value:,}")
    if report.oldest_age is not None:
        parts.append(f"oldest {report.oldest_age:.0f} s")
    _log.info("query %s, batch %d: %s", report.query, report.batch, ", ".join(parts))
