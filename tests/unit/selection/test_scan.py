"""The parts of a scan that need no catalog: conditions and the order of places."""

import pyarrow as pa

from queue_core.selection.scan import PLACE, in_order, is_lasting, mask
from queue_core.selector import Selector
from queue_core.values.schema import NOW

SCHEMA = pa.schema([("n", pa.int64()), (NOW, pa.timestamp("us"))])


def test_a_condition_on_the_moment_does_not_last():
    assert is_lasting(Selector.parse("n > 0", SCHEMA))
    assert not is_lasting(Selector.parse(f"{NOW} > '2024-01-01'", SCHEMA))


def test_a_row_is_selected_when_it_meets_all_conditions():
    conditions = [Selector.parse(each, SCHEMA) for each in ("n > 0", "n < 5")]
    rows = pa.table({"n": [1, -1, 5, None]})

    assert mask(rows, conditions).tolist() == [True, False, False, False]
    assert mask(rows, []).tolist() == [True] * 4


def test_rows_are_sorted_by_their_places():
    rows = pa.table({PLACE: [5, 3, 9], "n": [50, 30, 90]})
    assert in_order(rows).column("n").to_pylist() == [30, 50, 90]
    already = rows.take([1, 0, 2])
    assert in_order(already) is already
