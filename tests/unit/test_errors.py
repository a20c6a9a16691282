"""The tree of errors: the class shows what a caller should do."""

import inspect

from queue_core import errors

KINDS = (errors.Invalid, errors.Conflict, errors.Unavailable, errors.Damaged)
ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.IgnisError)
]
LEAVES = [kind for kind in ALL if kind not in KINDS and kind is not errors.IgnisError]


def test_each_error_is_of_exactly_one_kind():
    for kind in LEAVES:
        assert [issubclass(kind, one) for one in KINDS].count(True) == 1, kind


def test_each_error_says_when_it_is_raised_and_what_to_do():
    for kind in ALL:
        summary, blank, *details = inspect.getdoc(kind).splitlines()

        assert summary.endswith("."), kind
        assert not blank, kind
        assert details, kind
        # Without a message an error shows the first line.
        assert str(kind()) == summary
        assert str(kind("the queue is full")) == "the queue is full"


def test_the_tree_that_is_drawn_names_each_error_and_no_other():
    drawn = {
        line.split("── ")[1].split()[0] for line in errors.__doc__.splitlines() if "── " in line
    }
    assert drawn == {kind.__name__ for kind in ALL} - {"IgnisError"}
