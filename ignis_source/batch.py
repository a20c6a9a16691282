"""
The batch reader: `spark.read` browses a queue, or shows a view of the store. Takes nothing.

It accepts no filters from Spark, even if filter push-down is on: Spark 4.3 plans all reads of one
DataFrame with the filters of one of them, so that ``t.where("x = 2")`` and ``t.where("x = 3")``
would give the same rows. The option `selector` filters at the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ignis_source.options import SourceOptions
from ignis_source.partition import IgnisPartition, TablePartition, split
from ignis_source.schema import batch_schema, check_columns
from queue_core.support.brief_errors import briefly, briefly_yielded
from queue_core.values.schema import output_schema
from queue_core.values.views import VIEWS


class IgnisBatchReader(DataSourceReader):
    """Reads all messages of a magazine, waiting or in flight."""

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        self._options = options
        self._wanted = wanted
        self._schema = batch_schema(wanted)

    @briefly
    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read from the present catalog."""
        # Not at the top: executors import this module and need no SQL library.
        from ignis_source.queue_refresh import located, open_queues
        from queue_core.catalog.identity.handle import StoreHandle
        from queue_core.verbs.browse import browse
        from queue_core.verbs.quarantine import quarantine

        options = self._options
        if options.log is not None:
            from ignis_source.log_session import LogSession

            with closing(LogSession(options, self._wanted)) as session:
                return session.batch()
        if options.view is not None:
            check_columns(options, self._wanted, VIEWS[options.view])
        with closing(StoreHandle(options.address)) as store:
            if options.view is not None:
                from queue_core.watching import views

                uri = store.storage.uri
                table = views.view(store.catalog, options.view, options.queues or None, uri)
                return [TablePartition.of(table)]
            options = located(store, options)
            queues = open_queues(store, options.queues)
            check_columns(options, self._wanted, output_schema(queues[0].schema))
            if options.selector is not None:
                from ignis_source.requests import check_selection

                # With a schema that the user gave, nobody has checked it yet.
                check_selection(queues, options)
            # Now, because damage that an earlier read found would fail this one too.
            quarantine(store.catalog, store.storage)
            reading = browse(store.catalog, store.storage.uri, queues, options.magazine)
            now = None if options.selector is None else store.catalog.now()
        concurrency = max(queue.settings.concurrency for queue in queues)
        return split(reading, options.partitions or max(concurrency, 1), options.selector, now)

    @briefly_yielded
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition; runs on an executor."""
        if isinstance(partition, IgnisPartition | TablePartition):
            return partition.batches(self._schema)
        # Spark makes up a partition if there is none.
        return iter(())
