"""Categories: rows of a few kinds are told apart when they are loaded. Touches no storage.

The rows of each kind become a slice of their own, whose statistics say what all of them are. So
those of one kind are found without a look at any row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from queue_core.rows import Numbers

#: Kinds that are told apart among rows that are written together; more are left together.
MOST = 64


def kinds(rows: pa.Table, columns: Sequence[str]) -> list[Numbers]:
    """The numbers of the rows of each combination of values, that with the first row first."""
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in columns:
        coded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        if len(coded.dictionary) > MOST:
            return [np.arange(rows.num_rows)]
        codes = codes * len(coded.dictionary) + coded.indices.to_numpy(zero_copy_only=False)
    _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    if len(firsts) > MOST:
        return [np.arange(rows.num_rows)]
    return [np.flatnonzero(codes == code) for code in np.argsort(firsts)]
