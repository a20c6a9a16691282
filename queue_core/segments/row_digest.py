"""A digest of rows that depends neither on their order nor on their partitions.

It recognises a batch of rows that is written again. Of lists and maps, only the lengths count.
"""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from queue_core.segments.shard_hash import can_be_key, halves_of, mix, numbers_of
from queue_core.segments.value_hash import hash_values, weighed

_Hashes = npt.NDArray[np.uint64]
#: In place of a null; one number among all numbers has the same word.
_NULL = np.uint64(0xA0B428DB5C1F7E63)
#: Digests are sums modulo this number.
MODULUS = 1 << 64


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
