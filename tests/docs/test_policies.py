"""The page on policies covers every policy, answer and function. test_readme.py runs it."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from queue_core.policies.aggregates import FUNCTIONS
from queue_core.policies.decisions import Decision
from queue_core.policies.parsing import MAKERS, parse

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("text", pa.string()),
        ("number", pa.int64()),
        ("amount", pa.float64()),
        ("amount_max", pa.float64()),
        ("times", pa.int32()),
    ]
)
TEXTS = [
    line
    for block in re.findall(r"```text\n(.*?)```", PAGE, re.S)
    for line in block.split("\n")
    if line
]


@pytest.mark.parametrize("text", TEXTS)
def test_each_policy_is_understood(text):
    parse(text, SCHEMA, "kind").bind(SCHEMA, "kind")


def test_each_policy_has_a_section_and_an_example():
    assert re.findall(r"^### (\w+)", PAGE, re.M) == list(MAKERS)
    assert {re.match(r"\w+", text)[0] for text in TEXTS} == set(MAKERS)


def test_each_answer_and_each_function_is_described():
    rows = re.findall(r"^\| ([\w' ]+) \|", PAGE, re.M)
    assert [row for row in rows if row in [*Decision]] == [*Decision]
    table = PAGE.partition("| function |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(FUNCTIONS)
