"""The reader of messages since Spark 4.2, which says where a batch starts, and its limits."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ignis_source.limits import admitted, default_limit, lingers
from ignis_source.stream import IgnisStreamReader
from queue_core.support.brief_errors import briefly


class AdmittedStreamReader(IgnisStreamReader, SupportsTriggerAvailableNow):
    """Fires messages within Spark's read limits."""

    @briefly
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the read limit of each trigger, and begin the session: this is the first call."""
        self._driver()
        return default_limit(self._options)

    @briefly
    def prepareForTriggerAvailableNow(self) -> None:
        """Note the present end of the queue."""
        self._driver().set_horizon()

    @briefly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset of the next batch; *start* if there is none."""
        waits = lingers(self._options, limit)
        return self.after(start, admitted(self._options, limit), lingers=waits)
