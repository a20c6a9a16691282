"""`DataSource`: picks the reader or writer and validates early. It has no logic and no handles.

Spark creates one in each of many processes, so modules that need the catalog are imported in calls.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from queue_core.errors import BadOption, IgnisError


class IgnisDataSource(DataSource):
    """``format("ignis")``: message queues as streams and tables, in both directions."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ignis"

    def schema(self) -> StructType:
        """Return the queue's columns and the metadata columns, or those of a view."""
        from ignis_source.options import SourceOptions
        from ignis_source.schema import source_schema

        return source_schema(SourceOptions.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """
        Browse a queue, or show a view.

        Args:
            schema: The columns to return: some of those that `schema` returned.

        Returns:
            The reader, which Spark sends to its executors.

        Raises:
            BadOption: An option is unknown, malformed, or for streams only.
            SchemaMismatch: The queue or the view lacks one of the columns.
        """
        from ignis_source.batch import IgnisBatchReader
        from ignis_source.options import SourceOptions
        from ignis_source.schema import projection

        options = SourceOptions.of(self.options)
        if options.reports:
            raise BadOption("task= is for spark.readStream; in a batch, read the view 'reports'")
        _refuse_order(options.order_by)
        return IgnisBatchReader(options, projection(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """
        Fire messages, one ticket for each micro-batch; or run side tasks.

        Args:
            schema: The columns to return: some of those that `schema` returned.

        Returns:
            The reader, which Spark sends to its executors.

        Raises:
            BadOption: An option is unknown, malformed, or for batches only.
            SchemaMismatch: The queue or the reports lack one of the columns.
        """
        # A query waits for these.
        with _without_collections():
            from ignis_source.options import SourceOptions
            from ignis_source.schema import projection
            from ignis_source.stream import IgnisStreamReader
            from ignis_source.task_stream import IgnisTaskReader

        options = SourceOptions.of(self.options)
        if options.reports:
            return IgnisTaskReader(options, projection(options, schema))
        if options.view is not None:
            raise BadOption(f"view={options.view!r} is for spark.read; a stream reads messages")
        if options.ack == "browse":
            _refuse_order(options.order_by)
        return IgnisStreamReader(options, projection(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """
        Load or settle the rows of a DataFrame.

        Args:
            schema: The DataFrame's columns.
            overwrite: Whether Spark is to replace what the queue holds, which is refused.

        Returns:
            The writer, which Spark sends to its executors.

        Raises:
            BadOption: An option is unknown or malformed, or *overwrite* is true.
            SchemaMismatch: The columns do not fit the queue.
            BadOutcome: The columns are not those of a settlement.
        """
        from ignis_sink.load import LoadBatchWriter
        from ignis_sink.options import SinkOptions
        from ignis_sink.planning import find_target
        from ignis_sink.settle import SettleBatchWriter, check_settlement

        options = SinkOptions.of(self.options)
        _refuse_overwrite(overwrite)
        if options.mode == "settle":
            check_settlement(options, schema)
            return SettleBatchWriter(options)
        return LoadBatchWriter(options, find_target(options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """
        Load or settle the rows of each micro-batch, exactly once.

        Args:
            schema: The DataFrame's columns.
            overwrite: Whether Spark is to replace what the queue holds, as with
                ``outputMode("complete")``; this is refused.

        Returns:
            The writer, which Spark sends to its executors. Where the queue does not take the
            columns, its first batch raises the error.

        Raises:
            BadOption: An option is unknown or malformed, or *overwrite* is true.
            BadOutcome: The columns are not those of a settlement.
        """
        from ignis_sink.load import LoadStreamWriter
        from ignis_sink.options import SinkOptions
        from ignis_sink.planning import find_target
        from ignis_sink.settle import SettleStreamWriter, check_settlement
        from ignis_sink.target import Target

        options = SinkOptions.of(self.options)
        _refuse_overwrite(overwrite)
        if options.mode == "settle":
            check_settlement(options, schema)
            return SettleStreamWriter(options)
        try:
            target: Target | IgnisError = find_target(options, schema)
        except IgnisError as error:
            target = error
        return LoadStreamWriter(options, target)


@contextmanager
def _without_collections() -> Iterator[None]:
    """
    Import modules without the garbage collector, which would find next to nothing in them.

    Otherwise it searches all modules once or more while a query starts, Spark's modules too.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        # The program controls the collector by itself.
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Together these count every object as old, so that no full collection is due soon.
        gc.freeze()
        gc.unfreeze()
        gc.enable()


def _refuse_order(order_by: str | None) -> None:
    if order_by is not None:
        raise BadOption(
            f"orderBy={order_by!r} cannot be used when browsing, which fires nothing; order the "
            "DataFrame instead"
        )


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise BadOption(
            "a queue cannot be overwritten: use mode('append'), or outputMode('append')"
        )
