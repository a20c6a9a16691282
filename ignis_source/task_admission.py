"""The reader of side tasks since Spark 4.2, which says where a batch starts."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ignis_source.task_stream import IgnisTaskReader
from queue_core.support.brief_errors import briefly


class AdmittedTaskReader(IgnisTaskReader, SupportsTriggerAvailableNow):
    """Runs side tasks when they are due; with Trigger.AvailableNow, once."""

    @briefly
    def prepareForTriggerAvailableNow(self) -> None:
        """Run the tasks once: later, because Spark has not requested the first offset yet."""
        self._driver().run_once()

    @briefly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset of the newest report; *start* if there is none."""
        return self.after(start)
