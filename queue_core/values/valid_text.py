"""Strings that are valid UTF-8. Arrow and Spark accept others, which Python cannot read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

#: Strings in buffers of up to this many bytes are validated as they are.
_SMALL = 16 << 10


def is_valid(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether all strings of a column, also nested ones, are valid UTF-8."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return all(_is_valid(text) for chunk in chunks for text in _texts(chunk))


def valid(column: pa.Array) -> pa.Array:
    """Return an array with ``?`` for each byte of its strings that is not valid UTF-8."""
    if is_valid(column):
        return column
    rows = pa.record_batch([column], ["column"])
    copied = bytearray(rows.serialize())
    memory = pa.py_buffer(copied)
    mended = pa.ipc.read_record_batch(memory, rows.schema).column(0)
    for text in _texts(mended):
        if not _is_valid(text):
            offsets, data = _parts(text)
            first = data.ctypes.data - memory.address
            # Between two strings, a zero keeps the bytes of both from being one character.
            seams = (offsets[1:-1] - offsets[0]).astype(np.int64)
            apart = np.insert(data, seams, 0).tobytes().decode(errors="surrogateescape")
            # A surrogate stands for one byte, and becomes one: all strings keep their places.
            good = np.frombuffer(apart.encode(errors="replace"), np.uint8)
            good = np.delete(good, seams + np.arange(len(seams)))
            copied[first : first + len(good)] = good.tobytes()
    return mended


def valid_table(table: pa.Table) -> pa.Table:
    """Return a table whose columns are as `valid` returns them."""
    batches = ([valid(column) for column in batch.columns] for batch in table.to_batches())
    mended = (pa.RecordBatch.from_arrays(columns, schema=table.schema) for columns in batches)
    return pa.Table.from_batches(mended, table.schema)


def readable(table: pa.Table) -> pa.Table:
    """
    Return a table that Python can read, for people.

    The times of a column become texts if Python lacks one of them, such as one in the year 10000.
    """
    for at, name in enumerate(table.column_names):
        if _goes_beyond(table.column(at)):
            column = table.column(at)
            table = table.set_column(at, name, column.cast(_with_texts(column.type)))
    return table


def _goes_beyond(column: pa.ChunkedArray) -> bool:
    """Return whether Python lacks one of the times of a column."""
    if _with_texts(column.type).equals(column.type):
        return False
    try:
        column.to_pylist()
    except (OverflowError, ValueError):
        return True
    return False


def _with_texts(kind: pa.DataType) -> pa.DataType:
    """Return a type with texts in place of times, nested ones too."""
    if pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_time(kind):
        return pa.string()
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_with_texts(field.type)) for field in kind])
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_texts(kind.value_type)))
    if pt.is_map(kind):
        parts = (kind.key_field, kind.item_field)
        return pa.map_(*(field.with_type(_with_texts(field.type)) for field in parts))
    return kind


def _texts(array: pa.Array) -> Iterator[pa.StringArray]:
    """Yield the arrays of strings in an array of a type that a queue stores."""
    if pt.is_string(array.type):
        yield array
    for part in parts_of(array):
        yield from _texts(part)


def parts_of(array: pa.Array) -> list[pa.Array]:
    """Return the arrays of the values within structs, lists or maps."""
    if pt.is_struct(array.type):
        return [array.field(index) for index in range(array.type.num_fields)]
    if len(array) and (pt.is_list(array.type) or pt.is_map(array.type)):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return [array.values.slice(first, last - first)]
    return []


def _is_valid(text: pa.StringArray) -> bool:
    # Many texts are ASCII, and this takes a fraction of the time that `validate` takes.
    if text.get_total_buffer_size() > _SMALL and _parts(text)[1].max(initial=0) < 0x80:
        return True
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _parts(text: pa.StringArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return the offsets and the bytes of strings, at least one."""
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    return ends, np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
