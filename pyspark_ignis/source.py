"""`DataSource`: picks the reader or writer and validates early. It has no logic and no handles.

Spark creates one in each of many processes, so modules that need the catalog are imported in calls.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_ignis import logs
from pyspark_ignis.shipping import check_arrivals, checked
from queue_core.errors import BadOption, IgnisError
from queue_core.support.brief_errors import briefly
from queue_core.support.collector import pass_over_imports, without_collections

if TYPE_CHECKING:
    from ignis_sink.message import Target
    from ignis_source.options import SourceOptions


# Spark imports this module in each of its processes.
logs.configure()


class IgnisDataSource(DataSource):
    """``format("ignis")``: message queues as streams and tables, in both directions."""

    # Whether Spark has asked for the columns, because the user has given no schema.
    _all_columns = False

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ignis"

    @briefly
    def schema(self) -> StructType:
        """Return the queue's columns and the metadata columns, or those of a view."""
        from ignis_source.options import SourceOptions
        from ignis_source.schema import source_schema

        self._all_columns = True
        return source_schema(SourceOptions.of(self.options))

    @briefly
    def reader(self, schema: StructType) -> DataSourceReader:
        """
        Browse a queue, or show a view.

        Args:
            schema: The columns to return: some of those that `schema` returned.

        Returns:
            The reader, which Spark sends to its executors. When Spark plans the read, it raises
            `SchemaMismatch` if the queue or the view lacks one of the columns.

        Raises:
            BadOption: An option is unknown, malformed, or for streams only.
        """
        from ignis_source.batch import IgnisBatchReader
        from ignis_source.options import SourceOptions

        options = SourceOptions.of(self.options)
        if options.reports:
            raise BadOption("task= is for spark.readStream; in a batch, read the view 'reports'")
        if options.log is not None:
            options.log.check(streams=False)
        _refuse_order(options)
        return checked(IgnisBatchReader(options, schema))

    @briefly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """
        Fire messages, one ticket for each micro-batch; or run side tasks.

        Args:
            schema: The columns to return: some of those that `schema` returned.

        Returns:
            The reader, which Spark sends to its executors. At its first call, it raises
            `SchemaMismatch` if the queue lacks one of the columns.

        Raises:
            BadOption: An option is unknown, malformed, or for batches only.
            SchemaMismatch: The reports lack one of the columns.
        """
        # A query waits for this.
        with without_collections():
            from ignis_source.options import SourceOptions

        options = SourceOptions.of(self.options)._replace(all_columns=self._all_columns)
        if options.view is not None:
            raise BadOption(f"view={options.view!r} is for spark.read; a stream reads messages")
        if options.ack == "browse":
            _refuse_order(options)
        if options.log is not None:
            options.log.check(streams=True)
        if tells_start():
            from ignis_source.admission import AdmittedReader

            return checked(AdmittedReader(options, schema))
        if options.min_messages is not None:
            raise BadOption(
                "ignis source: minMessagesPerTrigger needs Spark 4.2 or later: remove it, or set a "
                "longer processingTime trigger"
            )
        from ignis_source.older_spark import OlderReader

        return checked(OlderReader(options, schema))

    @briefly
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
        from ignis_sink.options import SinkOptions

        pass_over_imports()
        options = SinkOptions.of(self.options)
        _refuse_overwrite(overwrite)
        if options.mode == "settle":
            from ignis_sink.settle import SettleBatchWriter, check_settlement

            missing = check_settlement(options, schema)
            if missing is not None:
                raise missing
            return checked(SettleBatchWriter(options))
        from ignis_sink.load import LoadBatchWriter
        from ignis_sink.planning import find_target

        return checked(LoadBatchWriter(options, find_target(options, schema)))

    @briefly
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
        from ignis_sink.arrow_streams import stream_writer
        from ignis_sink.options import SinkOptions

        pass_over_imports()
        options = SinkOptions.of(self.options)
        _refuse_overwrite(overwrite)
        if options.txn is not None:
            raise BadOption(
                "txnAppId is for a batch write, such as in foreachBatch; a stream needs none: "
                "the sink knows the number of each batch"
            )
        if options.mode == "settle":
            from ignis_sink.settle import SettleStreamWriter, check_settlement

            missing = check_settlement(options, schema)
            from ignis_sink.output import find_output

            output = find_output(options)
            return checked(stream_writer(SettleStreamWriter(options, missing, output), schema))
        from ignis_sink.load import LoadStreamWriter
        from ignis_sink.planning import find_target

        try:
            target: Target | IgnisError = find_target(options, schema)
        except IgnisError as error:
            target = error
        return checked(stream_writer(LoadStreamWriter(options, target), schema))


# Spark sends it to executors together with its readers.
check_arrivals(IgnisDataSource)
#: Spark looks for this name in packages called ``pyspark_…``.
DefaultSource = IgnisDataSource


def tells_start() -> bool:
    """Return whether Spark says where a batch starts, as it does since 4.2."""
    return find_spec("pyspark.sql.streaming.datasource") is not None


def _refuse_order(options: SourceOptions) -> None:
    from queue_core.values.model import BY_SHARD

    for name, order in (("orderBy", options.order_by), ("order", options.order)):
        if order not in (None, BY_SHARD):
            raise BadOption(
                f"{name}={order!r} cannot be used when browsing, which fires nothing; order the "
                "DataFrame instead"
            )


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise BadOption(
            "a queue cannot be overwritten: use mode('append'), or outputMode('append')"
        )
