"""Streaming writers of Arrow batches, which Spark 4.0 lacks: there, rows are converted first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as DataSourceStreamArrowWriter
else:
    #: Spark's class of streaming writers that get Arrow batches; in 4.0, that of all of them.
    DataSourceStreamArrowWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter
    )

#: Rows that are converted at a time, as Spark does by default.
ROWS = 10_000


def stream_writer(
    writer: DataSourceStreamArrowWriter, schema: StructType
) -> DataSourceStreamWriter:
    """Return a writer that Spark can call: *writer* itself, or one that gives it batches."""
    if hasattr(datasource, "DataSourceStreamArrowWriter"):
        return writer
    return RowStreamWriter(writer, schema)


class RowStreamWriter(DataSourceStreamWriter):
    """Converts the rows that Spark 4.0 passes, one by one, for a writer of Arrow batches."""

    def __init__(self, writer: DataSourceStreamArrowWriter, schema: StructType) -> None:
        self._writer = writer
        self._schema = schema

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Write the rows of a partition; runs on an executor."""
        return self._writer.write(self._batches(iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Publish the batch."""
        self._writer.commit(messages, batchId)

    def _batches(self, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.conversion import LocalDataToArrowConversion

        while some := list(islice(rows, ROWS)):
            table = LocalDataToArrowConversion.convert(
                some, self._schema, use_large_var_types=False
            )
            yield from table.to_batches()
