"""The reader since Spark 4.2, which tells it where a batch starts and what limits it.

A trigger's own limit overrides those of the options: Trigger.Once reads all available messages.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ignis_source.options import SourceOptions
from ignis_source.stream import IgnisStreamReader
from queue_core.support.brief_errors import briefly


class AdmittedReader(IgnisStreamReader, SupportsTriggerAvailableNow):
    """Reads up to Spark's read limit and, with Trigger.AvailableNow, to a horizon."""

    @briefly
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the read limit of each trigger, and begin the session: this is the first call."""
        self._driver()
        return default_limit(self._options)

    @briefly
    def prepareForTriggerAvailableNow(self) -> None:
        """Note the present end of the queues, or of their logs; or run side tasks once."""
        self._driver().set_horizon()

    @briefly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset of the next batch; *start* if there is none."""
        return self.after(start, everything=isinstance(limit, ReadAllAvailable))


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
