"""The streaming reader: answers Spark's calls.

Spark creates this object in several processes, and pickles it to its executors, which only call
`read`. So the driver's state is in a session, which is imported and begun on first use. Spark
calls `stop` when its driver dies, and not when a query stops, so no reader releases anything there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ignis_source.options import SourceOptions
from ignis_source.partition import IgnisPartition, TablePartition
from ignis_source.schema import batch_schema, check_columns
from queue_core.support.brief_errors import briefly, briefly_yielded
from queue_core.support.collector import without_collections
from queue_core.values.views import REPORTS

if TYPE_CHECKING:
    from ignis_source.log_session import LogSession
    from ignis_source.session import Session
    from ignis_source.task_session import TaskSession

#: What a query reads: messages that it fires, logs, or reports of side tasks that it runs.
AnySession: TypeAlias = "Session | LogSession | TaskSession"


class IgnisStreamReader(DataSourceStreamReader):
    """
    Reads what its session says, in micro-batches.

    `admission` and `older_spark` add how each version of Spark asks for the next offset.
    """

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        if options.reports:
            check_columns(options, wanted, REPORTS)
        self._options = options
        self._wanted = wanted
        self._schema = batch_schema(wanted)
        self._session: AnySession | None = None

    @briefly
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a new query begins. Spark asks again for batch 0."""
        return self._driver().first()

    def after(self, start: dict[str, Any], *, everything: bool = False) -> dict[str, Any]:
        """Return the offset of the next batch, or *start*; with *everything*, no limit applies."""
        return self._driver().after(start, everything=everything)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the query is, for progress reports."""
        return None if self._session is None else self._session.report()

    @briefly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the rows after *start* up to *end*; the same at each call."""
        return self._driver().parts(start, end)

    @briefly_yielded
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, after the work of side tasks; runs on an executor."""
        if self._options.reports and not isinstance(partition, TablePartition):
            # Not at the top: the driver's planning process needs no SQL library.
            from ignis_source.task_partition import TaskPartition, do_runs

            assert isinstance(partition, TaskPartition)
            partition = TablePartition.of(do_runs(self._options, partition))
        if isinstance(partition, IgnisPartition | TablePartition):
            return partition.batches(self._schema)
        # Spark makes up a partition if there is none.
        return iter(())

    @briefly
    def commit(self, end: dict[str, Any]) -> None:
        """Note that a batch is committed, if `latestOffset` has not."""
        self._driver().commit(end)

    def _driver(self) -> AnySession:
        if self._session is None:
            self._session = self._begun()
        return self._session

    def _begun(self) -> AnySession:
        """Open the session; each imports only what it needs."""
        # Not at the top: executors import this module and need no SQL library.
        if self._options.log is not None:
            from ignis_source.log_session import LogSession

            return LogSession(self._options, self._wanted)
        if self._options.reports:
            from ignis_source.task_session import TaskSession

            return TaskSession(self._options)
        with without_collections():
            from ignis_source.session import Session

        session = Session(self._options)
        try:
            check_columns(self._options, self._wanted, session.columns)
        except BaseException:
            session.close()
            raise
        return session

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None}
