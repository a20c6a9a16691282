"""Rows from a file or from standard input, in bounded parts: JSON lines, Parquet or Arrow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet

from queue_core.errors import BadOption

#: Standard input, by the name that it usually has.
STDIN = "-"
_FORMATS = {
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
#: Bytes of JSON that are read at a time.
_JSON_BYTES = 16 << 20


def batches(
    file: str, format: str | None = None, schema: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """
    The rows of a file, or of standard input (``-``), batch by batch.

    *format* is ``jsonl``, ``parquet`` or ``arrow``; without it the name of the file tells. *schema*
    says how to read JSON, which has fewer types than a queue. Raises `BadOption`, which names the
    file.
    """
    read = _READERS[format or _format_of(file)]
    with _told(file), _opened(file) as source:
        yield from read(source, schema)


def schema_of(file: str, format: str | None = None) -> pa.Schema:
    """The columns of a file; raises `BadOption` where it has no rows to tell them from."""
    for batch in batches(file, format):
        return batch.schema
    raise BadOption(f"{file} has no rows")


def _format_of(file: str) -> str:
    suffix = Path(file).suffix.lower()
    if file == STDIN:
        return "jsonl"
    if suffix not in _FORMATS:
        raise BadOption(f"{file}: of which format is it? give --format jsonl, parquet or arrow")
    return _FORMATS[suffix]


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STDIN:
        yield sys.stdin.buffer
        return
    with open(file, "rb") as source:
        yield source


@contextmanager
def _told(file: str) -> Iterator[None]:
    """Map what goes wrong in reading to our own error."""
    try:
        yield
    except (OSError, EOFError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadOption(f"{file} cannot be read: {reason}") from error


def _jsonl(source: BinaryIO, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    known = None if schema is None else pa.schema([_as_json(field) for field in schema])
    for lines in _whole_lines(source):
        rows = pyarrow.json.read_json(
            pa.BufferReader(lines),
            pyarrow.json.ReadOptions(block_size=len(lines)),
            # A column that the queue lacks is for the queue to refuse: it knows the nearest name.
            pyarrow.json.ParseOptions(explicit_schema=known, unexpected_field_behavior="infer"),
        )
        yield from (rows if schema is None else _with_dates(rows, schema)).to_batches()


def _as_json(field: pa.Field) -> pa.Field:
    """How Arrow can read a column; what may be null is for the queue to say."""
    kind = pa.string() if pa.types.is_date(field.type) else field.type
    return pa.field(field.name, kind)


def _with_dates(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the dates that JSON has as text, and Arrow reads as text only."""
    for number, field in enumerate(rows.schema):
        if field.name in schema.names and pa.types.is_date(schema.field(field.name).type):
            dates = rows.column(number).cast(schema.field(field.name).type)
            rows = rows.set_column(number, field.name, dates)
    return rows


def _whole_lines(source: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while block := source.read(_JSON_BYTES):
        lines, _, rest = (rest + block).rpartition(b"\n")
        if lines.strip():
            yield lines
    if rest.strip():
        yield rest


def _parquet(source: BinaryIO, _: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    yield from pyarrow.parquet.ParquetFile(_seekable(source)).iter_batches()


def _arrow(source: BinaryIO, _: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    seekable = _seekable(source)
    begin = seekable.read(6)
    seekable.seek(0)
    if begin == b"ARROW1":
        reader = pa.ipc.open_file(seekable)
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from pa.ipc.open_stream(seekable)


def _seekable(source: BinaryIO) -> Any:
    return source if source.seekable() else pa.BufferReader(source.read())


_READERS: dict[str, Callable[[BinaryIO, pa.Schema | None], Iterator[pa.RecordBatch]]] = {
    "jsonl": _jsonl,
    "parquet": _parquet,
    "arrow": _arrow,
}
#: The formats that can be read.
FORMATS = tuple(_READERS)
