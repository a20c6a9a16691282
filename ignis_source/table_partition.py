"""A whole table as one partition: what is small enough to travel in Spark's plan."""

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
        """All rows of a table."""
        return TablePartition(pack(table))

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """On an executor: the rows, as batches of exactly *schema*, as Spark insists."""
        table = unpack(self.arrow).select(schema.names)
        return (relabelled(batch, schema) for batch in table.to_batches())
