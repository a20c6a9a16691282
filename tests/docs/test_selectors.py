"""The page on selectors: its examples can be used, and it names all functions."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from queue_core.selector import Order, Selector
from queue_core.selector.functions import FUNCTIONS
from queue_core.values.schema import output_schema

PAGE = (Path(__file__).parents[2] / "docs" / "selectors.md").read_text()
SCHEMA = output_schema(
    pa.schema(
        [
            ("number", pa.int64()),
            ("customer", pa.string()),
            ("amount", pa.float64()),
            ("placed_at", pa.timestamp("us", "UTC")),
        ]
    )
)
CONDITIONS, ORDERS = (block.split("\n") for block in re.findall(r"```sql\n(.*?)\n```", PAGE, re.S))


@pytest.mark.parametrize("text", CONDITIONS)
def test_each_condition_is_understood(text):
    rows = SCHEMA.empty_table()
    assert Selector.parse(text, SCHEMA).mask(rows).to_pylist() == []


@pytest.mark.parametrize("text", ORDERS)
def test_each_order_is_understood(text):
    assert len(Order.parse(text, SCHEMA).indices(SCHEMA.empty_table())) == 0


def test_the_table_of_functions_is_complete():
    table = PAGE.partition("## Functions")[2].partition("## Orders")[0]
    named = {name.replace("_", "").upper() for name in re.findall(r"`([a-z_]+)`", table)}
    assert named == set(FUNCTIONS)
