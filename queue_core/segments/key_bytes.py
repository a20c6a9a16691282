"""Keys as bytes: two keys have the same bytes if, and only if, they have the same values.

The bytes are a contract with stored data. NULL equals NULL, NaN equals NaN, and a float has one
zero. A value begins with a byte for its length. Numbers have their highest byte first, so that the
keys of rising numbers are next to each other. The SHA-256 of a long value stands for it.
"""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import xxhash

#: The most bytes of a value that a key contains itself. Hashing a longer one costs a call.
LITERAL = 100
#: The first byte of a NULL and of a hash. That of any other value is its length plus `_MORE`.
_NULL, _HASH, _MORE = 0, 1, 2
_BYTES = pa.large_binary()

_Flags = npt.NDArray[np.bool_]


def key_bytes(keys: pa.Table) -> pa.LargeBinaryArray:
    """Return the bytes of each key, at most `LITERAL` + 1; null for a key of NULLs only."""
    # Keys of different columns differ. The queue's owner chooses the columns: four bytes suffice.
    names = "\n".join(f"{field.name} {field.type}" for field in keys.schema)
    columns = xxhash.xxh3_64_digest(names.encode())[:4]
    # One batch after the other: a column of all of them may be too large for its type.
    batches = [batch.columns for batch in keys.to_batches() if batch.num_rows]
    return pa.chunked_array([_key(batch, columns) for batch in batches], _BYTES).combine_chunks()


def _key(arrays: Sequence[pa.Array], columns: bytes) -> pa.LargeBinaryArray:
    there = np.logical_or.reduce([_valid(array) for array in arrays])
    return pc.if_else(there, _value(_joined(arrays, columns), there), _scalar(None))


def _joined(arrays: Sequence[pa.Array], first: bytes) -> pa.LargeBinaryArray:
    """Return the values of each row after one another."""
    values = [_value(_bytes(array), _valid(array)) for array in arrays]
    return pc.binary_join_element_wise(
        pa.repeat(_scalar(first), len(arrays[0])), *values, _scalar(b"")
    )


def _value(values: pa.LargeBinaryArray, valid: _Flags) -> pa.LargeBinaryArray:
    """Return values, or the hashes of long ones, after the byte that tells how many follow."""
    values = pc.if_else(valid, values, _scalar(b""))
    lengths = pc.binary_length(values).to_numpy()
    is_long = lengths > LITERAL
    if is_long.any():
        rows = np.flatnonzero(is_long).tolist()
        hashes = pa.array([sha256(values[row].as_buffer()).digest() for row in rows], _BYTES)
        values = pc.replace_with_mask(values, pa.array(is_long), hashes)
    first = np.where(valid, np.where(is_long, _HASH, lengths + _MORE), _NULL)
    return pc.binary_join_element_wise(_of_width(first.astype(np.uint8), 1), values, _scalar(b""))


def _bytes(array: pa.Array) -> pa.LargeBinaryArray:
    """Return the bytes of each value; anything for NULLs."""
    kind = array.type
    if pt.is_struct(kind):
        return _joined(array.flatten(), b"")
    if pt.is_null(kind) or pt.is_string(kind) or pt.is_binary(kind):
        return array.cast(_BYTES)
    if pt.is_boolean(kind):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width :]
    data = data[: len(array) * width]
    if pt.is_floating(kind):
        floats = data.view(f"f{width}").copy()
        floats[floats == 0] = 0
        floats[np.isnan(floats)] = np.nan
        data = floats.view(np.uint8)
    return _of_width(np.ascontiguousarray(data.reshape(-1, width)[:, ::-1]), width)


def _of_width(data: npt.NDArray[np.uint8], width: int) -> pa.LargeBinaryArray:
    count = data.size // width
    offsets = np.arange(count + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(_BYTES, count, buffers)


def _scalar(value: bytes | None) -> pa.Scalar:
    # Never at the top: it would import pandas.
    return pa.scalar(value, _BYTES)


def _valid(array: pa.Array) -> _Flags:
    valid: _Flags = array.is_valid().to_numpy(zero_copy_only=False)
    return valid
