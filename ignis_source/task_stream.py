"""The streaming reader of side tasks: claims due tasks, has executors do them, and reports it.

An offset is a round of claimed runs, as a ticket is for messages (`queue_core.catalog.records.
task_runs`). The rows of a batch come from the catalog's task log. So a batch that is planned again
has the same rows, even if another process did its work. A commit keeps the reports: other queries
read them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ignis_source.offset import TaskOffset
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

    def after(self, start: dict[str, Any], *, everything: bool = False) -> dict[str, Any]:
        """Claim the due tasks, which no limit concerns; return the offset of their round."""
        return self._driver().next(self._own(start)).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offset, and what its round has claimed, for progress reports."""
        return None if self._session is None else self._session.figures()

    @briefly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the runs of the rounds after *start* up to *end*; the same at each call."""
        return self._driver().plan(self._own(start), self._own(end))

    @briefly_yielded
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Do the work of a partition, and return the reports; runs on an executor."""
        if not isinstance(partition, TablePartition):
            # Not at the top: the driver's planning process needs no SQL library.
            from ignis_source.task_partition import TaskPartition, do_runs

            assert isinstance(partition, TaskPartition)
            partition = TablePartition.of(do_runs(self._options, partition))
        return partition.batches(self._schema)

    def _own(self, logged: dict[str, Any]) -> TaskOffset:
        offset = TaskOffset.from_json(logged)
        offset.check_store(str(self._driver().store.catalog.store))
        return offset

    def _driver(self) -> TaskSession:
        if self._session is None:
            # Not at the top: Spark pickles this module's reader to processes that only read.
            from ignis_source.task_session import TaskSession

            self._session = TaskSession(self._options)
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None}
