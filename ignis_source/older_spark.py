"""Spark 4.0 and 4.1: a reader that learns where a batch starts from the plans that Spark requests.

These versions ask for the next offset without saying which one is committed. But they ask only
when all logged batches are committed. And a query that restarts first tells its reader the last
logged offset: it plans a batch from there to there (`setLatestSeenOffset` in Spark). Then, if that
batch is not committed, it plans it again. So the start is always the end of the last plan; a reader
that has planned nothing belongs to a new query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from ignis_source.stream import IgnisStreamReader
from queue_core.errors import BadOption
from queue_core.support.brief_errors import briefly

_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class OlderReader(IgnisStreamReader):
    """Takes the end of the last plan for the start of the next batch."""

    #: The offset at which a new query begins, and the end of the last plan.
    _first: dict[str, Any] | None = None
    _end: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a new query begins."""
        if self._first is None:
            self._first = super().initialOffset()
        return self._first

    # Later versions of PySpark pass the start and a limit.
    @briefly
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the offset of the next batch; the last one if there is none."""
        return self.after(self._end or self.initialOffset())

    @briefly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the rows after *start* up to *end*; raises `BadOption` if Spark asked too early."""
        # At the first call after a restart, it begins the session.
        self._driver()
        if start == end and self._end is None and self._first not in (None, end):
            raise BadOption(
                f"{_WRAPPER}=true hides from the ignis source which batches are committed; before "
                "Spark 4.2, leave it at Spark's default, false"
            )
        self._end = end
        # Not a batch: its start may not be committed, and must not be acknowledged.
        return [] if start == end else super().partitions(start, end)
