"""Evaluate nodes on the columns that they use.

Works block by block, which bounds the memory of intermediate values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

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
    return [[evaluate(node, _reader(batch)) for node in nodes] for batch in batches]


def _reader(batch: pa.RecordBatch) -> Callable[[Column], Datum]:
    """Return what reads the values of columns, each once."""
    found: dict[tuple[str, ...], Datum] = {}

    def read(column: Column) -> Datum:
        if column.path not in found:
            found[column.path] = column.read(batch.column(column.path[0]))
        return found[column.path]

    return read


def _column(rows: pa.RecordBatch | pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    if field.name not in rows.schema.names:
        return pa.nulls(rows.num_rows, field.type)
    return rows.column(field.name)
