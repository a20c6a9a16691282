"""The partitions that executors get, and how they read them. Imports no SQL library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from queue_core.segments.ipc import pack, unpack
from queue_core.support import faults, import_paths
from queue_core.support.collector import pass_over_imports
from queue_core.values.model import ReadPlan, ScanTask
from queue_core.values.plan import partitions as spread
from queue_core.values.schema import deserialize, output_schema


@dataclass
class IgnisPartition(InputPartition):
    """Messages of some shards, each shard in order, as plain values."""

    plan: ReadPlan
    #: A condition on the messages to read, or the import path of a function.
    selector: str | None = None

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the messages that match as batches of exactly *schema*, as Spark requires."""
        # Not at the top: a query's start does not wait for what its executors import.
        from queue_core.segments.reader import read

        # Before the rows: what is there now stays.
        pass_over_imports()
        if self.selector is None:
            for batch in read(self.plan, schema.names):
                yield _relabelled(batch, schema)
                faults.point("source.reading")
            return
        # Not at the top: streams select when they fire, and need no SQL parser here.
        from queue_core.selector import FunctionSelector, Selector

        whole = output_schema(deserialize(self.plan.schema))
        function = function_of(self.selector)
        condition = (
            FunctionSelector.of(function, whole)
            if function is not None
            else Selector.parse(self.selector, whole)
        )
        names = list(dict.fromkeys([*schema.names, *sorted(condition.columns)]))
        for batch in read(self.plan, names):
            selected = batch.filter(condition.mask(batch))
            yield _relabelled(selected.select(schema.names), schema)


@dataclass
class TablePartition(InputPartition):
    """A whole table, as Arrow IPC bytes: small enough to be part of Spark's plan."""

    arrow: bytes

    @staticmethod
    def of(table: pa.Table) -> TablePartition:
        """Return a partition with all rows of a table."""
        return TablePartition(pack(table))

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of exactly *schema*, as Spark requires."""
        table = unpack(self.arrow).select(schema.names)
        return (_relabelled(batch, schema) for batch in table.to_batches())


def split(plan: ReadPlan, count: int, selector: str | None = None) -> Sequence[IgnisPartition]:
    """Spread a plan over at most *count* partitions; the rows of a shard stay together."""
    shards: dict[tuple[str, int], list[ScanTask]] = defaultdict(list)
    for piece in plan.tasks:
        shards[piece.queue, piece.shard].append(piece)
    sizes = {shard: sum(piece.bytes for piece in pieces) for shard, pieces in shards.items()}
    return [
        IgnisPartition(
            replace(plan, tasks=tuple(piece for shard in shards_ for piece in shards[shard])),
            selector,
        )
        for shards_ in spread(sizes, count)
    ]


def _relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same columns with a schema of other nullability or names of nested fields."""
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def function_of(selector: str | None) -> Any:
    """Return the function that a selector names by its import path; None if it is no path."""
    if selector is None or not import_paths.is_path(selector):
        return None
    return import_paths.imported(selector, f"selector {selector!r}")
