"""A message of a soak says in which of the added columns it has a value."""

import pyarrow as pa
import pytest

from tests.soak.workload import altered, messages

ROWS = pa.concat_tables([messages(5, 4, 2), messages(9, 2)], promote_options="default")


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (ROWS, []),
        (messages(5, 3), []),
        (ROWS.drop(["added_1"]), [5, 6, 7, 8]),
        (ROWS.set_column(4, "added_0", pa.nulls(6, pa.int64())), [5, 6, 7, 8]),
        (ROWS.set_column(5, "added_1", [[6, 7, 8, 0, None, None]]), [8]),
    ],
)
def test_a_value_that_is_missing_or_another_one_is_found(rows, wrong):
    assert altered(rows) == wrong
