"""From a partition to record batches, on an executor. Imports no SQL library and no session."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ignis_source.partition import IgnisPartition
from queue_core.segments.reader import read
from queue_core.support import faults
from queue_core.support.collector import pass_over_imports
from queue_core.values.schema import deserialize, output_schema


def read_partition(partition: IgnisPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a partition as batches of exactly *schema*, as Spark requires."""
    for batch in read(partition.plan, schema.names):
        yield relabelled(batch, schema)
        faults.point("source.reading")


def read_selected(partition: IgnisPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the same, but only messages that match the partition's selector."""
    # Before the rows: what is there now stays.
    pass_over_imports()
    if partition.selector is None:
        return read_partition(partition, schema)
    # Not at the top: streams select when they fire, and need no SQL parser here.
    from queue_core.selector import Selector

    whole = output_schema(deserialize(partition.plan.schema))
    condition = Selector.parse(partition.selector, whole)
    names = list(dict.fromkeys([*schema.names, *sorted(condition.columns)]))
    selected = (batch.filter(condition.mask(batch)) for batch in read(partition.plan, names))
    return (relabelled(batch.select(schema.names), schema) for batch in selected)


def relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same columns with a schema of other nullability or names of nested fields."""
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
