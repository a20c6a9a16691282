"""Evaluate nodes on the columns that they use.

Works block by block, which bounds the memory of intermediate values.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import pyarrow as pa

from queue_core.errors import BadSelector
from queue_core.selector.nodes import Column, Datum, Node, evaluate

_BLOCK_ROWS = 1 << 17


def touched(names: Set[str], schema: pa.Schema) -> pa.Schema:
    """Return the fields of the schema with these names."""
    return pa.schema([(field.name, field.type) for field in schema if field.name in names])


def work_out(
    nodes: Sequence[Node], rows: pa.RecordBatch | pa.Table, schema: pa.Schema, text: str
) -> list[pa.ChunkedArray]:
    """
    Return the values of each node in the order of the rows. No node may be a constant.

    A column that the rows lack is NULL. Raises `BadSelector`, which quotes *text*, when a column
    has another type than in *schema*, or Arrow cannot compute with it.
    """
    try:
        # This casts a column of another type.
        table = pa.table([_column(rows, field) for field in schema], schema=schema)
        blocks = _blocks(nodes, table)
    except pa.ArrowException as error:
        raise BadSelector(f"{text!r} cannot be evaluated on these rows: {error}") from error
    return [
        pa.chunked_array([block[at] for block in blocks], node.type)
        for at, node in enumerate(nodes)
    ]


def _blocks(nodes: Sequence[Node], table: pa.Table) -> list[list[Datum]]:
    batches = table.to_batches(max_chunksize=_BLOCK_ROWS)
    return [[evaluate(node, _Reader(batch)) for node in nodes] for batch in batches]


class _Reader:
    """Reads the values of columns, each once."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._read: dict[tuple[str, ...], Datum] = {}

    def __call__(self, column: Column) -> Datum:
        if column.path not in self._read:
            self._read[column.path] = column.read(self._batch.column(column.path[0]))
        return self._read[column.path]


def _column(rows: pa.RecordBatch | pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    if field.name not in rows.schema.names:
        return pa.nulls(rows.num_rows, field.type)
    return rows.column(field.name)
