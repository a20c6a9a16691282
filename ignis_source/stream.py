"""The streaming reader: answers Spark's calls.

Spark creates this object in several processes, and pickles it to its executors, which only call
`read`. So the driver's state is in a `Session`, which is imported and begun on first use. Spark
calls `stop` when its driver dies, and not when a query stops, so no reader releases anything there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ignis_source.offset import Offset
from ignis_source.options import SourceOptions
from ignis_source.partition import IgnisPartition, split
from ignis_source.schema import batch_schema, check_columns
from queue_core.support.brief_errors import briefly, briefly_yielded
from queue_core.support.collector import without_collections
from queue_core.values.names import of_keeper, of_query

if TYPE_CHECKING:
    from ignis_source.session import Session


class IgnisStreamReader(DataSourceStreamReader):
    """
    Fires messages of one or more queues, one ticket for each micro-batch.

    `admission` and `older_spark` add how each version of Spark asks for the next offset.
    """

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        self._options = options
        self._wanted = wanted
        self._schema = batch_schema(wanted)
        self._name: str | None = options.consumer
        self._session: Session | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first ticket. Spark asks again for batch 0."""
        if self._name is None:
            name = of_query(self._options.queues)
            self._name = of_keeper(name) if self._options.ack == "keep" else name
        return Offset(self._name, 0).to_json()

    def after(self, start: dict[str, Any], *, everything: bool = False) -> dict[str, Any]:
        """
        Acknowledge committed batches, then fire the next messages.

        Spark asks only when all batches up to *start* are committed. For the last batch of a run
        this is the only notice. With *everything*, the options do not limit the batch, and it does
        not wait for more messages.
        """
        driver = self._driver()
        begin = Offset.from_json(start)
        self._name = begin.consumer
        driver.acknowledge(begin)
        options = self._options
        most = (None, None) if everything else (options.max_messages, options.max_bytes)
        return driver.next(begin, *most, lingers=not everything).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last ticket and the figures of the queues, for progress reports."""
        if self._session is None or self._name is None:
            return None
        return Offset(self._name, self._session.latest).to_json() | self._session.figures()

    @briefly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the messages of the tickets after *start* up to *end*; the same at each call."""
        driver = self._driver()
        finish = Offset.from_json(end)
        self._name = finish.consumer
        plan = driver.plan(Offset.from_json(start), finish)
        # A browser fires no messages, so executors select while they read.
        selector = self._options.selector if self._options.ack == "browse" else None
        now = None if selector is None else driver.store.catalog.now()
        return split(plan, driver.partitions, selector, now)

    @briefly_yielded
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the messages of a partition; runs on an executor."""
        assert isinstance(partition, IgnisPartition)
        return partition.batches(self._schema)

    @briefly
    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge a committed batch, if `latestOffset` has not."""
        self._driver().acknowledge(Offset.from_json(end))

    def _driver(self) -> Session:
        if self._session is None:
            # Not at the top: executors import this module and need no SQL library.
            with without_collections():
                from ignis_source.session import Session

            session = Session(self._options)
            try:
                check_columns(self._options, self._wanted, session.columns)
            except BaseException:
                session.close()
                raise
            self._session = session
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None}
