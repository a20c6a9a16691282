"""The streaming reader of logs. `admission` and `older_spark` complete it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ignis_source.offset import LogOffset
from ignis_source.options import SourceOptions
from ignis_source.partition import LogPartition
from ignis_source.schema import batch_schema
from queue_core.support.brief_errors import briefly, briefly_yielded

if TYPE_CHECKING:
    from ignis_source.log_session import LogSession


class IgnisLogReader(DataSourceStreamReader):
    """Reads the messages of logs, from the offsets of Spark's checkpoint on."""

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        self._options = options
        self._wanted = wanted
        self._schema = batch_schema(wanted)
        self._session: LogSession | None = None

    @briefly
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a new query begins. Spark asks again for batch 0."""
        return self._driver().initial().to_json()

    def after(self, start: dict[str, Any], *, everything: bool = False) -> dict[str, Any]:
        """Return the offset of the next batch, of *everything* if so; *start* if there is none."""
        begin, log = LogOffset.from_json(start), self._options.log
        most = None if everything or log is None else log.most
        found = self._driver().next(begin, most)
        return start if found is begin else found.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the logs, for progress reports."""
        if self._session is None:
            return None
        ends: dict[str, Any] = {}
        for (queue, shard), each in sorted(self._session.reached.items()):
            ends.setdefault(queue, {})[str(shard)] = each.end
        return ends

    @briefly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the messages of the batch that *end* describes; the same at each call."""
        return [] if start == end else self._driver().plan(LogOffset.from_json(end))

    @briefly_yielded
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the messages of a partition; runs on an executor."""
        # Spark makes up a partition if there is none.
        return partition.batches(self._schema) if isinstance(partition, LogPartition) else iter(())

    def _driver(self) -> LogSession:
        if self._session is None:
            # Not at the top: executors import this module and need no SQL library.
            from ignis_source.log_session import LogSession

            self._session = LogSession(self._options, self._wanted)
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None}
