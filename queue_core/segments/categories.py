"""Split loaded rows by their categories. Touches no storage.

The rows of each combination of values become their own slice, whose statistics describe all of
them. So a selector finds these rows without reading any.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from queue_core.values.rows import Numbers

#: Rows that are written together are split into at most this many kinds; with more, not at all.
MOST = 64


def kinds(rows: pa.Table, columns: Sequence[str]) -> list[Numbers]:
    """Return the row numbers of each combination of values, in the order of their first rows."""
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
