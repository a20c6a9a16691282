"""A whole table as one partition, small enough to be part of Spark's plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ignis_source.read import relabelled
from queue_core.segments.ipc import pack, unpack


@dataclass
class TablePartition(InputPartition):
    """A table, as Arrow IPC bytes."""

    arrow: bytes

    @staticmethod
    def of(table: pa.Table) -> TablePartition:
        """Return a partition with all rows of a table."""
        return TablePartition(pack(table))

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of exactly *schema*, as Spark requires; runs on an executor."""
        table = unpack(self.arrow).select(schema.names)
        return (relabelled(batch, schema) for batch in table.to_batches())
