"""Hashes of texts and bytes by which a digest tells rows apart.

Unlike those of `queue_core.segments.shard_hash`, they are compared within one batch and its
repetition only, and cost a fraction. The words of short values are hashed place by place, those of
all values at once. A long value costs one call of xxHash, so calls are few beside its bytes.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from queue_core.segments.shard_hash import mix

_Hashes = npt.NDArray[np.uint64]
#: Bytes from which a value is hashed by itself.
LONG = 512
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: How many columns and words have weights of their own.
_PLACES = 4096
#: An odd number for each place of a word in a short value, or of a column in a row.
_WEIGHTS = mix(np.arange(1, _PLACES + 1, dtype=np.uint64)) | np.uint64(1)


def weighed(
    words: _Hashes, place: int | npt.NDArray[np.int64], out: _Hashes | None = None
) -> _Hashes:
    """
    Return words with their places mixed in, to be added up.

    Args:
        words: The words.
        place: The place of all of them, or of each, 0 or more.
        out: An array for the result, which may be *words*; by default, a new one.
    """
    mixed = np.multiply(words, _SPREAD, out=out)
    mixed ^= mixed >> np.uint64(32)
    mixed *= _WEIGHTS[place % _PLACES]
    return mixed


def hash_values(values: pa.Array) -> _Hashes:
    """
    Return a hash of each value.

    Args:
        values: An array of strings or binary, with 32-bit offsets. Nulls count as empty values if
            their offsets span no bytes.
    """
    _, offsets_buffer, data = values.buffers()
    if len(values) == 0:
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset :][: len(values) + 1]
    begins, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    sums = np.zeros(len(values), np.uint64)
    short = np.flatnonzero((lengths > 0) & (lengths < LONG))
    if len(short):
        sums[short] = _short(data, begins[short], lengths[short])
    for row in np.flatnonzero(lengths >= LONG).tolist():
        value = memoryview(data)[begins[row] : begins[row] + lengths[row]]
        sums[row] = xxhash.xxh3_64_intdigest(value)
    return mix(sums ^ mix(lengths.view(np.uint64) ^ _SPREAD))


def _short(
    data: pa.Buffer, begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> _Hashes:
    """Return the sum of the hashes of the eight-byte words of each value; no value is empty."""
    low, high = int(begins.min()), int((begins + lengths).max())
    padded = np.zeros(high - low + 8, np.uint8)
    padded[: high - low] = np.frombuffer(data, np.uint8)[low:high]
    # Every word of the data, at any byte.
    windows = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    begins = begins - low
    # The place of the last word of each value, which may be cut.
    last = (lengths - 1) >> 3
    words = windows[begins + 8 * last]
    words &= _ALL >> (8 * (8 * (last + 1) - lengths)).astype(np.uint64)
    sums = weighed(words, last, words)
    for place in range(int(last.min())):
        words = windows[begins + 8 * place]
        sums += weighed(words, place, words)
    rows = np.arange(len(begins))
    for place in range(int(last.min()), int(last.max())):
        rows = rows[last[rows] > place]
        words = windows[begins[rows] + 8 * place]
        sums[rows] += weighed(words, place, words)
    return sums
