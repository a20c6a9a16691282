"""The streaming reader of side tasks: runs them and returns reports of the messages they moved.

Its rows come from the catalog's task log. So a batch that is planned again has the same rows, even
if another process ran the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ignis_source.offset import ReportOffset
from ignis_source.options import SourceOptions
from ignis_source.partition import TablePartition
from ignis_source.schema import batch_schema, check_columns
from queue_core.support.brief_errors import briefly, briefly_yielded
from queue_core.values.views import REPORTS

if TYPE_CHECKING:
    from ignis_source.task_session import TaskSession


class IgnisTaskReader(DataSourceStreamReader):
    """Runs side tasks when they are due, or once. `admission` and `older_spark` complete it."""

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        check_columns(options, wanted, REPORTS)
        self._options = options
        self._schema = batch_schema(wanted)
        self._session: TaskSession | None = None

    @briefly
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset after all present reports."""
        return self._driver().begin().to_json()

    def after(self, start: dict[str, Any]) -> dict[str, Any]:
        """Run the due tasks, and return the offset of the newest report."""
        return self._driver().next(ReportOffset.from_json(start)).to_json()

    @briefly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the reports after *start* up to *end*; the same at each call."""
        reports = self._driver().reports(ReportOffset.from_json(start), ReportOffset.from_json(end))
        return [TablePartition.of(reports)]

    @briefly_yielded
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows; runs on an executor."""
        assert isinstance(partition, TablePartition)
        return partition.batches(self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Keep the reports: other queries read them too."""

    def stop(self) -> None:
        """Release nothing: Spark calls this when its driver dies, and not when a query stops."""

    def _driver(self) -> TaskSession:
        if self._session is None:
            # Not at the top: executors import this module and need no SQL library.
            from ignis_source.task_session import TaskSession

            self._session = TaskSession(self._options)
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None}
