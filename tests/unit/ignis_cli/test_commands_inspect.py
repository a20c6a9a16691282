"""A line of bars shows the newest numbers from 0 to the highest, and what is unknown as a gap."""

import pytest

from ignis_cli.commands_inspect import bars


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([0, 0], "▁▁"),
        ([None, None], "  "),
        ([0, 7, None, 8], "▁█ █"),
        ([0, 0.001, 4, 8], "▁▂▅█"),
        (list(range(9)), "▂▃▄▅▆▇██"),
        ([-1.0, 5.0], "▁█"),
    ],
)
def test_a_line_has_one_bar_for_each_number(values, line):
    assert bars(values, 8) == line


def test_the_highest_number_is_the_highest_of_those_that_are_shown():
    assert bars([100, 1, 1], 2) == "██"
