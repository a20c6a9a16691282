"""List the waiting messages of a queue in their order, without ignis.

    python examples/plain_reader.py /tmp/shop orders

It imports nothing of ignis, and shows that the page docs/catalog.md is enough to write a reader in
any language. It needs a store in a folder, with its SQLite catalog, and changes nothing there.
"""

import itertools
import json
import operator
import sqlite3
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

FORMAT = "3"
#: The codes in `slices.magazine` and `slices.state`.
MAIN, LOADED = 0, 0
#: A message id is the number of a segment, and the number of a row in this many bits.
ROW_BITS = 20
#: An entry of `segments.chunks`: rows, offset, length, and an xxh3-64 checksum.
CHUNK = struct.Struct("<IQQQ")
TIMESTAMP = pa.timestamp("us", tz="UTC")
#: The columns that describe a message. They follow the queue's own columns.
METADATA = [
    pa.field("_message_id", pa.int64(), nullable=False),
    pa.field("_queue", pa.string(), nullable=False),
    pa.field("_shard", pa.int32(), nullable=False),
    pa.field("_attempt", pa.int32(), nullable=False),
    pa.field("_loaded_at", TIMESTAMP, nullable=False),
    pa.field("_fired_at", TIMESTAMP),
]
#: The columns that a compacted segment has after those of the queue, found by their position.
COMPACTED = [
    pa.field("_message_id", pa.int64(), nullable=False),
    pa.field("_loaded_at", TIMESTAMP, nullable=False),
    pa.field("_row", pa.uint32(), nullable=False),
]

SLICES = """
    SELECT shard, position, segment_id, row_start, row_stop, bitmap, attempts, fired_at
    FROM slices WHERE queue_id = ? AND magazine = ? AND state = ? ORDER BY segment_id
"""
SEGMENT = """
    SELECT segments.*, id_map.segment_id IS NOT NULL AS compacted
    FROM segments LEFT JOIN id_map ON id_map.segment_id = segments.id WHERE segments.id = ?
"""


class Part(NamedTuple):
    """Rows of one segment: their numbers, the ids and times of their messages, and their values."""

    rows: pa.Array
    ids: pa.Array
    loaded_at: pa.Array
    columns: list[pa.Array]


def waiting(folder: str, name: str) -> pa.Table:
    """Return the waiting messages in the main magazine of a queue, by shard and place."""
    root = Path(folder).resolve()
    address = root.joinpath("catalog.db").as_uri() + "?mode=ro"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as catalog:
        catalog.row_factory = sqlite3.Row
        # All statements see one state of the catalog.
        catalog.execute("BEGIN")
        (found,) = catalog.execute("SELECT value FROM facts WHERE name = 'format'").fetchone()
        if found != FORMAT:
            raise SystemExit(f"the catalog has format {found}, and this reader knows {FORMAT}")
        query = "SELECT id, schema_version, root_id FROM queues WHERE name = ?"
        queue = catalog.execute(query, (name,)).fetchone()
        if queue is None:
            raise SystemExit(f"there is no queue {name!r} in {folder}")
        # Of a subscription, only what it has taken in: the other messages are in the log.
        schemas = schemas_of(catalog, queue["root_id"] or queue["id"])
        now = schemas[queue["schema_version"]]
        held = catalog.execute(SLICES, (queue["id"], MAIN, LOADED)).fetchall()
        tables = []
        for number, slices in itertools.groupby(held, operator.itemgetter("segment_id")):
            segment = catalog.execute(SEGMENT, (number,)).fetchone()
            parts = list(read(root, segment, schemas[segment["schema_version"]], now))
            tables += [messages(piece, part, now, name) for piece in slices for part in parts]
    return in_order(tables, pa.schema([*now, *METADATA]))


def schemas_of(catalog: sqlite3.Connection, queue_id: int) -> dict[int, pa.Schema]:
    """Return each schema that a queue has had, by its version."""
    rows = catalog.execute("SELECT version, arrow FROM schemas WHERE queue_id = ?", (queue_id,))
    return {version: pa.ipc.read_schema(pa.py_buffer(data)) for version, data in rows}


def read(root: Path, segment: sqlite3.Row, written: pa.Schema, now: pa.Schema) -> Iterator[Part]:
    """Yield the chunks of a segment, with nulls in the columns that are newer than it."""
    whole = pa.schema([*written, *COMPACTED]) if segment["compacted"] else written
    data = segment["data"]
    if data is None:
        data = root.joinpath(segment["file"]).read_bytes()
    first = 0
    for rows, offset, length, _ in CHUNK.iter_unpack(segment["chunks"]):
        message = pa.ipc.read_message(data[offset : offset + length])
        batch = pa.ipc.read_record_batch(message, whole)
        columns = [
            batch.columns[written.get_field_index(field.name)]
            if field.name in written.names
            else pa.nulls(batch.num_rows, field.type)
            for field in now
        ]
        if segment["compacted"]:
            ids, loaded_at, numbers = batch.columns[-len(COMPACTED) :]
        else:
            numbers = pa.array(range(first, first + rows), pa.uint32())
            ids = pc.add(numbers.cast(pa.int64()), segment["id"] << ROW_BITS)
            loaded_at = pa.repeat(pa.scalar(segment["loaded_at"], TIMESTAMP), rows)
        yield Part(numbers, ids, loaded_at, columns)
        first += rows


def messages(piece: sqlite3.Row, part: Part, now: pa.Schema, name: str) -> pa.Table:
    """Return the messages of a slice that are in a part of its segment, each with its place."""
    if piece["bitmap"] is None:
        wanted = range(piece["row_start"], piece["row_stop"])
    else:
        wanted = BitMap.deserialize(piece["bitmap"])
    mask = pc.is_in(part.rows, pa.array(wanted, pa.uint32()))
    rows = part.rows.filter(mask)
    place = pc.add(rows.cast(pa.int64()), piece["position"] - piece["row_start"])
    described = [
        part.ids.filter(mask),
        same(name, pa.string(), len(rows)),
        same(piece["shard"], pa.int32(), len(rows)),
        same(piece["attempts"], pa.int32(), len(rows)),
        part.loaded_at.filter(mask),
        same(piece["fired_at"], TIMESTAMP, len(rows)),
    ]
    columns = [*(column.filter(mask) for column in part.columns), *described, place]
    return pa.table(columns, schema=pa.schema([*now, *METADATA, PLACE]))


#: The column by which the rows of a shard are sorted, and which is then dropped.
PLACE = pa.field("", pa.int64())


def same(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """Return a value *count* times."""
    return pa.repeat(pa.scalar(value, kind), count)


def in_order(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return all messages as one table, by shard and place."""
    if not tables:
        return schema.empty_table()
    joined = pa.concat_tables(tables)
    keys = [("_shard", "ascending"), (PLACE.name, "ascending")]
    return joined.take(pc.sort_indices(joined, sort_keys=keys)).drop_columns([PLACE.name])


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit("usage: python examples/plain_reader.py FOLDER QUEUE")
    for each in waiting(*sys.argv[1:]).to_pylist():
        print(json.dumps(each, default=str))
