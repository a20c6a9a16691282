"""A digest of rows that depends neither on their order nor on their partitions.

It recognises a batch of rows that is written again. Of lists and maps, only the lengths count.

Unlike the hashes of `queue_core.segments.shard_hash`, those of texts and bytes are compared within
one batch and its repetition only, and cost a fraction. The words of short values are hashed place
by place, those of all values at once. A long value costs one call of xxHash, so calls are few
beside its bytes.
"""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
import xxhash

from queue_core.segments.shard_hash import can_be_key, halves_of, mix, numbers_of

_Hashes = npt.NDArray[np.uint64]
#: The word of a null; one of all numbers has the same word.
_NULL = np.uint64(0xA0B428DB5C1F7E63)
#: Digests are sums modulo this number.
MODULUS = 1 << 64
#: Bytes from which a value is hashed by itself.
LONG = 512
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: How many columns and words have weights of their own.
_PLACES = 4096
#: Values of one length that are hashed at a time: as many as fit into a processor's cache.
_AT_ONCE = 1024
#: An odd number for each place of a word in a short value, or of a column in a row.
_WEIGHTS = mix(np.arange(1, _PLACES + 1, dtype=np.uint64)) | np.uint64(1)


def digest_of(rows: pa.RecordBatch) -> int:
    """Return the sum of the hashes of rows. Digests of parts add up, modulo `MODULUS`."""
    return int(_combined(rows.columns, rows.num_rows).sum(dtype=np.uint64))


def digest_of_ids(ids: npt.NDArray[np.int64]) -> int:
    """Return the sum of the hashes of message ids."""
    return int(mix(ids.view(np.uint64)).sum(dtype=np.uint64))


def _combined(columns: Sequence[pa.Array], rows: int) -> _Hashes:
    """Return a hash of each row of some columns."""
    sums = np.zeros(rows, np.uint64)
    for place, column in enumerate(columns):
        sums += weighed(_column(column), place)
    return mix(sums)


def _column(column: pa.Array) -> _Hashes:
    """Return a word for each value."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    inner = column.flatten() if pt.is_struct(column.type) else None
    words = _flat(column) if inner is None else _combined(inner, len(column))
    if column.null_count:
        words = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, words)
    return words


def _flat(column: pa.Array) -> _Hashes:
    kind = column.type
    if pt.is_large_string(kind):
        column = column.cast(pa.string())
    elif pt.is_large_binary(kind):
        column = column.cast(pa.binary())
    elif pt.is_list(kind) or pt.is_large_list(kind):
        # Not at the top: a query waits for imports, and few rows have lists.
        import pyarrow.compute as pc

        column = pc.list_value_length(column).cast(pa.int64())
    elif pt.is_floating(kind):
        column = column.cast(pa.float64()).view(pa.int64())
    elif pt.is_time64(kind) or pt.is_duration(kind):
        column = column.view(pa.int64())
    if not can_be_key(column.type):
        return np.zeros(len(column), np.uint64)
    if column.null_count:
        column = column.fill_null(_zero(column.type))
    if pt.is_string(column.type) or pt.is_binary(column.type):
        return hash_values(column)
    if pt.is_decimal128(column.type):
        halves = halves_of(column)
        return weighed(halves[:, 0], 0) + weighed(halves[:, 1], 1)
    return numbers_of(column)


def _zero(kind: pa.DataType) -> pa.Scalar:
    if pt.is_string(kind) or pt.is_binary(kind):
        return pa.scalar("" if pt.is_string(kind) else b"", kind)
    if pt.is_boolean(kind):
        return pa.scalar(False)
    # A cast from an integer would need 19 digits of a decimal.
    return pa.scalar(Decimal(0) if pt.is_decimal(kind) else 0, kind)


def weighed(
    words: _Hashes, place: int | npt.NDArray[np.int64], out: _Hashes | None = None
) -> _Hashes:
    """
    Return words with their places mixed in, to be added up.

    *place* is that of all words, or of each. The result is in *out*, which may be *words*.
    """
    mixed = np.multiply(words, _SPREAD, out=out)
    mixed ^= mixed >> np.uint64(32)
    mixed *= _WEIGHTS[place % _PLACES]
    return mixed


def hash_values(values: pa.Array) -> _Hashes:
    """
    Return a hash of each value of an array of strings or binary, with 32-bit offsets.

    Nulls count as empty values if their offsets span no bytes.
    """
    _, offsets_buffer, data = values.buffers()
    if len(values) == 0:
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset :][: len(values) + 1]
    begins, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    sums = np.zeros(len(values), np.uint64)
    long = np.flatnonzero(lengths >= LONG)
    length = int(lengths[0])
    if 0 < length < LONG and (lengths == length).all():
        sums = _short_of_one_length(data, int(begins[0]), len(values), length)
    elif len(long) == 0 and lengths.all():
        sums = _short(data, begins, lengths)
    elif len(short := np.flatnonzero((lengths > 0) & (lengths < LONG))):
        sums[short] = _short(data, begins[short], lengths[short])
    for row in long.tolist():
        value = memoryview(data)[begins[row] : begins[row] + lengths[row]]
        sums[row] = xxhash.xxh3_64_intdigest(value)
    return mix(sums ^ mix(lengths.view(np.uint64) ^ _SPREAD))


def _short(
    data: pa.Buffer, begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> _Hashes:
    """Return the sum of the hashes of the eight-byte words of each value; no value is empty."""
    low, high = int(begins.min()), int((begins + lengths).max())
    # Aligned words, as numpy gathers them several times as fast as others. Two of them make a word
    # of a value.
    aligned = np.empty((high - low) // 8 + 2, np.uint64)
    aligned[-2:] = 0
    aligned.view(np.uint8)[: high - low] = np.frombuffer(data, np.uint8)[low:high]
    begins = begins - low
    # The place of the last word of each value.
    last = (lengths - 1) >> 3
    most = int(last.max())
    order = None
    if int(last.min()) < most:
        # The longest first, so that the values that have a word at a place are next to each other.
        order = np.argsort((most - last).astype(np.uint16), kind="stable")
        begins, lengths, last = begins[order], lengths[order], last[order]
    at = begins >> 3
    right = ((begins & 7) << 3).astype(np.uint64)
    # One less than the bits to the left, since a shift by all 64 is undefined.
    left = np.uint64(63) - right
    ends = at + last
    words = aligned[ends] >> right
    words |= (aligned[ends + 1] << _ONE) << left
    # A last word may be cut.
    words &= _ALL >> (8 * (8 * (last + 1) - lengths)).astype(np.uint64)
    sums = weighed(words, last, words)
    longer = len(last) - np.cumsum(np.bincount(last, minlength=most + 1))
    begin = aligned[at]
    for place, rows in enumerate(longer[:most].tolist()):
        at, begin = at[:rows], begin[:rows]
        at += 1
        end = aligned[at]
        begin >>= right[:rows]
        words = end << _ONE
        words <<= left[:rows]
        words |= begin
        sums[:rows] += weighed(words, place, words)
        begin = end
    if order is None:
        return sums
    unordered = np.empty_like(sums)
    unordered[order] = sums
    return unordered


def _short_of_one_length(data: pa.Buffer, begin: int, count: int, length: int) -> _Hashes:
    """Return the same as `_short` for values that follow one another, in half the time."""
    values = np.frombuffer(data, np.uint8)[begin : begin + count * length].reshape(count, length)
    places = (length + 7) // 8
    padded = np.zeros((min(count, _AT_ONCE), 8 * places), np.uint8)
    sums = np.empty(count, np.uint64)
    for start in range(0, count, _AT_ONCE):
        some = values[start : start + _AT_ONCE]
        padded[: len(some), :length] = some
        words = padded[: len(some)].view(np.uint64) * _SPREAD
        words ^= words >> np.uint64(32)
        np.einsum("ij,j->i", words, _WEIGHTS[:places], out=sums[start : start + _AT_ONCE])
    return sums
