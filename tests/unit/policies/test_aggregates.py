"""Sums of merging messages: large ones, and those that do not fit."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from queue_core.errors import SchemaMismatch
from queue_core.policies.aggregates import Take


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), *map(pa.decimal128, (3, 38))])
def test_a_sum_that_does_not_fit(kind):
    of_wholes = {pa.int32(): 2**31 - 1, pa.int64(): 2**63 - 1}
    most = of_wholes[kind] if kind in of_wholes else 10**kind.precision - 1
    column = pa.chunked_array([pa.array([most, most], pa.decimal128(38, 0)).cast(kind)])
    with pytest.raises(SchemaMismatch, match="'n': the result of sum"):
        Take("sum", "n").fold(column, pa.array([0, 0]).to_numpy(), 1)


def test_a_large_sum_that_fits():
    column = pa.chunked_array([[2**63 - 1, -(2**63), -1, 1, None]])
    groups = pa.array([0, 1, 0, 0, 1]).to_numpy()
    assert Take("sum", "n").fold(column, groups, 2).to_pylist() == [2**63 - 1, -(2**63)]


def test_a_sum_of_decimals_that_fits():
    kind = pa.decimal128(38, 2)
    values = [Decimal("1e35"), Decimal("0.25"), Decimal("-1e35"), None]
    column = pa.chunked_array([pa.array(values, kind)])
    sums = Take("sum", "n").fold(column, pa.array([0, 1, 0, 1]).to_numpy(), 2)
    assert (sums.type, sums.to_pylist()) == (kind, [Decimal("0.00"), Decimal("0.25")])
