"""Hash keys to shards, vectorised, with the same result everywhere and forever.

The hash is a contract with stored data: rows of one key stay in one shard, in order, across
processes, machines and versions. Strings and bytes are hashed eight bytes at a time, all rows at
once; fixed-width values by their bits. The mixing step is the finaliser of MurmurHash3.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.errors import SchemaMismatch
from queue_core.values.names import nearest

_Hashes = npt.NDArray[np.uint64]
_SEED = np.uint64(0x9E3779B97F4A7C15)


def shards_of(keys: pa.Array, shards: int) -> npt.NDArray[np.uint16]:
    """
    Return the shard of each key.

    *keys* is an array of integers, booleans, dates, timestamps, decimals, strings or binary without
    nulls; the result has a number in ``[0, shards)`` for each.
    """
    if shards == 1:
        return np.zeros(len(keys), dtype=np.uint16)
    return (hash_of(keys) % np.uint64(shards)).astype(np.uint16)


def check_key(key: str | None, schema: pa.Schema, queue: str) -> None:
    """Raise `SchemaMismatch` unless a column of *schema* can be the key of a queue."""
    if key is None:
        return
    if key not in schema.names:
        hint = nearest(str(key), schema.names) or f". Columns: {', '.join(schema.names)}"
        raise SchemaMismatch(f"key={key!r}: queue {queue!r} has no column {key!r}{hint}")
    kind = schema.field(key).type
    if not can_be_key(kind):
        raise SchemaMismatch(
            f"key={key!r}: a column of type {kind} cannot pick the shard; use an integer, boolean, "
            "date, timestamp, decimal, string or binary column"
        )


def can_be_key(kind: pa.DataType) -> bool:
    """Return whether a column of a type can be the key of a queue."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
    )


def hash_of(keys: pa.Array) -> _Hashes:
    """Return the hash of each key, as of `shards_of`."""
    kind = keys.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(keys)
    if pa.types.is_decimal128(kind):
        words = halves_of(keys)
        return mix(mix(words[:, 0] ^ _SEED) ^ words[:, 1])
    return mix(numbers_of(keys) ^ _SEED)


def halves_of(decimals: pa.Array) -> _Hashes:
    """Return the two words of each decimal128, as rows."""
    words = np.frombuffer(decimals.buffers()[1], dtype=np.uint64).reshape(-1, 2)
    return words[decimals.offset : decimals.offset + len(decimals)]


def numbers_of(values: pa.Array) -> _Hashes:
    """Return the word of each integer, boolean, date or timestamp."""
    if pa.types.is_date32(values.type):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())
    # Through int64, so that a key keeps its shard when its column is read back wider.
    numbers: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers.view(np.uint64)


def _hash_bytes(keys: pa.Array) -> _Hashes:
    if len(keys) == 0:
        return np.empty(0, dtype=np.uint64)
    _, offsets_buffer, data = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[keys.offset :][: len(keys) + 1]
    # Every eight-byte window of the data, at any byte: rows then gather their words from it.
    low, high = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(high - low + 8, dtype=np.uint8)
    if high > low:
        padded[: high - low] = np.frombuffer(data, dtype=np.uint8)[low:high]
    windows = np.ndarray(shape=(len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))
    at = offsets[:-1].astype(np.int64) - low
    left = np.diff(offsets).astype(np.int64)
    most = int(left.max())
    hashes: _Hashes = _OF_LENGTHS[left] if most <= _SHORT else mix(left.view(np.uint64) ^ _SEED)
    # The rows that have a word left: at first all of them, as a slice, which costs no look-up.
    rows: slice | npt.NDArray[np.int64] = slice(None)
    while most > 0:
        there = left > 0
        if not there.all():
            rows = np.flatnonzero(there) if isinstance(rows, slice) else rows[there]
            at, left = at[there], left[there]
        words = windows[at]
        words &= _BYTES[np.minimum(left, 8)]
        hashes[rows] = mix(hashes[rows] ^ words)
        at, left, most = at + 8, left - 8, most - 8
    return hashes


def mix(words: _Hashes) -> _Hashes:
    """Return each word with its bits mixed."""
    mixed = words ^ (words >> np.uint64(33))
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed


#: Up to this many bytes, the hash with which a text begins is looked up.
_SHORT = 64
_OF_LENGTHS = mix(np.arange(_SHORT + 1, dtype=np.uint64) ^ _SEED)
#: For 0 to 8 bytes, a word with all of their bits.
_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
