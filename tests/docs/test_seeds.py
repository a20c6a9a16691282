"""The page about the documents behind ignis: each item names tests that exist, as all pages do."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from queue_core.upkeep.leader.zookeeper import ZooKeeperLeader
from queue_core.upkeep.tasks.registry import REGISTRY
from queue_core.upkeep.tasks.task import RETRY_SECONDS, Timing
from queue_core.values.settings import MAX_CONCURRENCY, QueueSettings
from queue_core.verbs import sweep

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "seeds.md").read_text()
#: The cells of each row with an item: the document's, ours, and the tests.
ITEMS = [
    [cell.strip() for cell in line.strip("|").split(" |")]
    for table in re.findall(r"^\| the document \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.M)
    for line in table.splitlines()
]
DIFFERS, NOT_BUILT = "**Differs:**", "**Not built:**"
NOT_POSSIBLE = "**Not possible:**"


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The functions of a test file."""
    found = ast.walk(ast.parse(path.read_text())) if path.is_file() else ()
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef))


def missing_tests(cell: str) -> list[str]:
    """What a cell names and is no test."""
    missing = []
    for part in cell.split("<br>"):
        path, _, name = part.strip("`").partition("::")
        if not name.startswith("test_") or name not in functions_of(TESTS / path):
            missing.append(part)
    return missing


def test_the_items_are_found():
    assert len(ITEMS) > 100
    assert {len(cells) for cells in ITEMS} == {3}


def test_an_item_names_its_tests():
    faults = {
        item: missing_tests(tests) or "no test"
        for item, ours, tests in ITEMS
        if (missing_tests(tests) if tests else NOT_BUILT not in ours)
    }

    assert faults == {}


def test_an_item_says_why_it_is_different():
    for _, ours, _ in ITEMS:
        for mark in (DIFFERS, NOT_BUILT, NOT_POSSIBLE):
            assert mark not in ours or len(ours.partition(mark)[2]) > 20


def test_what_spark_makes_impossible_has_its_experiment():
    rows = [(ours, tests) for _, ours, tests in ITEMS if NOT_POSSIBLE in ours]

    assert rows
    assert all("spark/test_impossible.py::" in tests for _, tests in rows)


@pytest.mark.parametrize(
    "cell",
    [
        "`contract/test_fire.py::test_that_is_not_there`",
        "`contract/test_nowhere.py::test_what_is_fired_is_not_fired_again`",
        "`contract/test_fire.py::fill`",
        "`contract/test_fire.py`",
        "soon",
    ],
)
def test_a_name_without_a_test_is_noticed(cell):
    good = "`contract/test_fire.py::test_what_is_fired_is_not_fired_again`"

    assert missing_tests(good) == []
    assert missing_tests(f"{good}<br>{cell}") == [cell]


def test_the_tests_that_any_page_names_are_there():
    pages = TESTS.parent.glob("docs/**/*.md")
    named = {n for page in pages for n in re.findall(r"[\w/]+\.py::\w+", page.read_text())}

    assert len(named) > 100
    assert missing_tests("<br>".join(each.removeprefix("tests/") for each in named)) == []


def test_the_figures_are_those_of_the_documents():
    from pyspark_ignis import IgnisManager

    settings = QueueSettings()
    manager = inspect.signature(IgnisManager).parameters
    zookeeper = inspect.signature(ZooKeeperLeader).parameters

    assert (settings.sweep_after, settings.shovel_interval, settings.shovel_concurrency) == (
        20 * 60,
        600,
        4,
    )
    assert REGISTRY["sweep"].timing == Timing(15 * 60, first=10 * 60)
    assert sweep.BATCH_SLICES == 1000
    assert sweep.BATCH_MESSAGES == 100_000
    assert RETRY_SECONDS == 10
    assert MAX_CONCURRENCY == 100
    assert (manager["refresh_interval"].default, manager["first_refresh"].default) == (5 * 60, 60)
    assert zookeeper["every"].default == 30
