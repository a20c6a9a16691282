"""Read rows from a file or standard input in bounded parts: JSON lines, CSV, Parquet or Arrow."""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ignis_cli import json_lines
from queue_core.errors import BadOption
from queue_core.values.arrow_types import is_binary, is_text
from queue_core.values.names import nearest

#: The usual name of standard input.
STDIN = "-"
#: Bytes of JSON read at a time.
_JSON_BYTES = 16 << 20
#: How some of Arrow's errors end: they count the rows of a part.
_ROW = re.compile(r",? in row \d+$")


def batches(
    file: str, format: str | None = None, schema: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """
    Return the rows of a file, or of standard input (``-``), batch by batch.

    *format* is one of `FORMATS`; by default, the file's extension decides. *schema* says how to
    read JSON and CSV, which have fewer types than a queue; bytes in JSON are base64. Raises
    `BadOption`, which names the file, and for JSON the line.
    """
    read, _ = FORMATS[_format_of(file, format)]
    place = "standard input" if file == STDIN else file
    try:
        with nullcontext(sys.stdin.buffer) if file == STDIN else open(file, "rb") as source:
            yield from read(source, schema, place)
    except (OSError, EOFError, ValueError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadOption(f"{place} cannot be read: {reason}") from error


def values(assignments: Sequence[str], schema: pa.Schema) -> dict[str, Any]:
    """
    Return the values of ``COLUMN=VALUE`` by column, in the types of a schema.

    A value is text for a column of strings, base64 for a binary one, and otherwise JSON, such as
    ``12`` or ``["a"]``, or the text of a time. Raises `BadOption`.
    """
    found = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadOption(f"--set {text}: write COLUMN=VALUE")
        if name not in schema.names:
            raise BadOption(
                f"--set {text}: there is no column {name!r}{nearest(name, schema.names)}"
            )
        kind = schema.field(name).type
        try:
            line = f"{{{json.dumps(name)}: {_json_text(value, kind)}}}".encode()
            column = pa.schema([schema.field(name).with_nullable(True)])
            (row,) = json_lines.table_of(line, column).to_pylist()
        except (ValueError, pa.ArrowException) as error:
            wrong = f"--set {text}: column {name!r} is {kind}, and {value!r} is not"
            raise BadOption(wrong + (" base64" if is_binary(kind) else "")) from error
        found[name] = row[name]
    return found


def _json_text(value: str, kind: pa.DataType) -> str:
    """Return a value as JSON in one line; a text that is not JSON stands for a time or the like."""
    if not (is_text(kind) or is_binary(kind)):
        with suppress(ValueError):
            json.loads(value)
            # As it is, since floats would round decimals. Within texts, JSON has no line ends.
            return value.replace("\n", " ").replace("\r", " ")
    return json.dumps(value)


def schema_of(file: str, format: str | None = None) -> pa.Schema:
    """Return the columns of a file; raises `BadOption` if it has no rows."""
    for batch in batches(file, format):
        return batch.schema
    raise BadOption(f"{file} has no rows")


def _format_of(file: str, format: str | None) -> str:
    if format is not None and format not in FORMATS:
        raise BadOption(f"--format {format}{nearest(format, FORMATS)}; use {', '.join(FORMATS)}")
    if format is not None or file == STDIN:
        return format or "jsonl"
    for name, (_, extensions) in FORMATS.items():
        if file.lower().endswith(extensions):
            return name
    raise BadOption(f"{file}: unknown extension; give --format {', '.join(FORMATS)}")


def _jsonl(source: BinaryIO, schema: pa.Schema | None, place: str) -> Iterator[pa.RecordBatch]:
    read = partial(json_lines.table_of, schema=schema)
    for before, whole in _whole_lines(source):
        try:
            rows = read(whole)
        except (ValueError, pa.ArrowException):
            line, why = _first_bad_line(whole.split(b"\n"), read)
            raise BadOption(f"line {before + line} of {place} cannot be read: {why}") from None
        yield from rows.to_batches()


def _first_bad_line(lines: Sequence[bytes], read: Callable[[bytes], pa.Table]) -> tuple[int, str]:
    """
    Return the number of the first bad line, from 1, and what is wrong with it.

    Arrow counts rows, and only in some of its errors, so halving finds the line.
    """
    why = ""

    def fails(count: int) -> bool:
        nonlocal why
        part = b"\n".join(lines[:count])
        try:
            if part.strip():
                read(part)
        except (ValueError, pa.ArrowException) as error:
            why = str(error)
            return True
        return False

    # The last count that fails in the search is the one that it returns, so `why` belongs to it.
    count = bisect_left(range(len(lines) + 1), True, key=fails)
    return count, _ROW.sub("", why).removeprefix("JSON parse error: ")


def _whole_lines(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield some lines at a time, and how many come before them."""
    before, rest = 0, b""
    while block := source.read(_JSON_BYTES):
        lines, newline, rest = (rest + block).rpartition(b"\n")
        if lines.strip():
            yield before, lines
        before += lines.count(b"\n") + len(newline)
    if rest.strip():
        yield before, rest


def _csv(source: BinaryIO, schema: pa.Schema | None, _: str) -> Iterator[pa.RecordBatch]:
    yield from pyarrow.csv.open_csv(
        source,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=schema,
            # An empty field is a null; an empty text is written as "".
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _parquet(source: BinaryIO, *_: Any) -> Iterator[pa.RecordBatch]:
    yield from pyarrow.parquet.ParquetFile(_seekable(source)).iter_batches()


def _arrow(source: BinaryIO, *_: Any) -> Iterator[pa.RecordBatch]:
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


_Reader = Callable[[BinaryIO, pa.Schema | None, str], Iterator[pa.RecordBatch]]
#: The formats, each with its reader and the extensions of its files.
FORMATS: dict[str, tuple[_Reader, tuple[str, ...]]] = {
    "jsonl": (_jsonl, (".json", ".jsonl", ".ndjson")),
    "csv": (_csv, (".csv",)),
    "parquet": (_parquet, (".parquet", ".pq")),
    "arrow": (_arrow, (".arrow", ".feather", ".ipc")),
}
