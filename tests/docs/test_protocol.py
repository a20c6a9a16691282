"""The protocol's page has the state after a crash at each point, and the order of the locks."""

import re
from pathlib import Path

from queue_core.catalog import format
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.slices import slices
from queue_core.support import faults
from queue_core.upkeep.tasks.vacuum import GRACE_SECONDS

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent.joinpath("docs/protocol.md").read_text()
#: The meaning of each invariant, and the tests that guard it.
GUARDS = {
    number: (meaning, re.findall(r"`([\w/.]+)`", tests))
    for number, meaning, tests in re.findall(
        r"^\| (I\d+) \| (.+)\. \| (.+) \|$", PAGE, re.MULTILINE
    )
}
#: What is left at each point, and who cleans up.
CRASHES = {
    point: (left, remedy)
    for point, left, remedy in re.findall(r"^\| `([\w.]+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
}


def test_what_a_crash_at_each_point_leaves_is_said():
    assert CRASHES.keys() == faults.POINTS.keys()
    assert [point for point, cells in CRASHES.items() if not all(cells)] == []


def test_the_locks_have_the_order_of_the_code():
    order = re.search(r"cannot deadlock: ([\w\s,]+)\.", slices.__doc__)[1]

    assert f"> {' '.join(order.split())}" in PAGE.splitlines()


def test_the_figures_are_those_of_the_code():
    page = " ".join(PAGE.split())

    assert f"without a heartbeat for {DEAD_AFTER_SECONDS:.0f} seconds is dead" in page
    assert GRACE_SECONDS == 3600, "the page says an hour"
    assert f"a format version, now {format.FORMAT}." in page


def test_each_invariant_is_on_the_page_with_the_tests_that_guard_it():
    assert list(GUARDS) == [f"I{number}" for number in range(1, len(GUARDS) + 1)]
    assert len({meaning for meaning, _ in GUARDS.values()}) == len(GUARDS)
    for number, (_, tests) in GUARDS.items():
        assert tests, number
        assert [test for test in tests if not TESTS.joinpath(test).exists()] == []
