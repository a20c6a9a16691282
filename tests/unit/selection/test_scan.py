"""The parts of a scan that need no catalog: conditions, order and moments."""

from datetime import UTC, datetime

import pyarrow as pa

from queue_core.selection.scan import (
    PLACE,
    columns_of,
    in_order,
    is_lasting,
    mask,
    moment,
    with_moment,
)
from queue_core.selector import Selector
from queue_core.values.schema import AGE, NOW

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), (NOW, pa.timestamp("us"))])
POSITIVE = Selector.parse("n > 0", SCHEMA)
SHORT = Selector.parse("length(s) < 3 OR n = 5", SCHEMA)


def test_a_row_is_selected_when_it_meets_all_conditions():
    rows = pa.table({"n": [1, -1, 5, 2], "s": ["a", "a", "abcd", None]})

    assert mask(rows, [POSITIVE, SHORT]).tolist() == [True, False, True, False]
    assert mask(rows, []).tolist() == [True] * 4


def test_the_columns_of_all_conditions_are_read():
    assert columns_of([POSITIVE, SHORT]) == {"n", "s"}
    assert columns_of([]) == frozenset()


def test_a_condition_on_the_moment_does_not_last():
    assert is_lasting(POSITIVE)
    assert not is_lasting(Selector.parse(f"{NOW} > '2024-01-01'", SCHEMA))


def test_rows_are_sorted_by_their_places():
    rows = pa.table({PLACE: [5, 3, 9], "n": [50, 30, 90]})

    assert in_order(rows).column("n").to_pylist() == [30, 50, 90]
    already = rows.take([1, 0, 2])
    assert in_order(already) is already


def test_the_moment_and_the_age_are_added_when_they_are_read():
    loaded = pa.array([1_000_000, 3_000_000], pa.timestamp("us", "UTC"))
    rows = pa.table({"_loaded_at": loaded})

    assert with_moment(rows, {"n"}, 5_000_000).column_names == ["_loaded_at"]
    added = with_moment(rows, {NOW, AGE}, 5_000_000)
    assert added.column(AGE).to_pylist() == [4.0, 2.0]
    assert added.column(NOW).cast(pa.int64()).to_pylist() == [5_000_000] * 2


def test_a_time_of_the_catalog_is_in_utc():
    assert moment(1_000_001) == datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)
