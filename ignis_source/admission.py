"""The readers since Spark 4.2, which tells them where a batch starts and what limits it.

A trigger's own limit overrides those of the options: Trigger.Once reads all available messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ignis_source.log_stream import IgnisLogReader
from ignis_source.options import SourceOptions
from ignis_source.stream import IgnisStreamReader
from ignis_source.task_stream import IgnisTaskReader
from queue_core.support.brief_errors import briefly


class _Admitted(SupportsTriggerAvailableNow):
    """Reads up to Spark's read limit and, with Trigger.AvailableNow, to a horizon."""

    #: The options, and what returns the next offset and the session; the other base class has them.
    _options: SourceOptions
    after: Callable[..., dict[str, Any]]
    _driver: Callable[[], Any]

    @briefly
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the read limit of each trigger, and begin the session: this is the first call."""
        self._driver()
        return default_limit(self._options)

    @briefly
    def prepareForTriggerAvailableNow(self) -> None:
        """Note the present end of the queues, or of their logs."""
        self._driver().set_horizon()

    @briefly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset of the next batch; *start* if there is none."""
        return self.after(start, everything=isinstance(limit, ReadAllAvailable))


class AdmittedStreamReader(_Admitted, IgnisStreamReader):
    """Fires messages within Spark's read limits."""


class AdmittedTaskReader(_Admitted, IgnisTaskReader):
    """Runs side tasks when they are due; with Trigger.AvailableNow, once."""

    @briefly
    def prepareForTriggerAvailableNow(self) -> None:
        """Run the tasks once: later, because Spark has not requested the first offset yet."""
        self._driver().run_once()


class AdmittedLogReader(_Admitted, IgnisLogReader):
    """Reads logs within Spark's read limits."""


def default_limit(options: SourceOptions) -> ReadLimit:
    """Return the limit that Spark shows for each trigger; of two limits, it can hold one."""
    if options.log is not None and options.log.most is not None:
        return ReadMaxRows(options.log.most)
    if options.max_messages is not None:
        return ReadMaxRows(options.max_messages)
    if options.max_bytes is not None:
        return ReadMaxBytes(options.max_bytes)
    if options.min_messages is not None:
        return ReadMinRows(options.min_messages)
    return ReadAllAvailable()
