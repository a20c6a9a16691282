"""The tree of errors: the class shows what a caller should do."""

import inspect

import pytest

from queue_core import errors

KINDS = (errors.Invalid, errors.Conflict, errors.Unavailable, errors.Damaged)
ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.IgnisError)
]
LEAVES = [kind for kind in ALL if kind not in KINDS and kind is not errors.IgnisError]


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
def test_each_error_is_of_exactly_one_kind(kind):
    assert [issubclass(kind, one) for one in KINDS].count(True) == 1


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_without_a_message_shows_the_first_line_of_its_class(kind):
    assert str(kind()) == inspect.getdoc(kind).splitlines()[0]
    assert str(kind("the queue is full")) == "the queue is full"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_each_error_says_when_it_is_raised_and_what_to_do(kind):
    summary, blank, *details = inspect.getdoc(kind).splitlines()

    assert summary.endswith(".")
    assert not blank
    assert details


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
def test_the_tree_that_is_drawn_names_each_error(kind):
    assert f"── {kind.__name__} " in f"{errors.__doc__} ".replace("\n", " \n")


def test_the_tree_that_is_drawn_names_no_error_that_is_not_there():
    drawn = {
        line.split("── ")[1].split()[0] for line in errors.__doc__.splitlines() if "── " in line
    }

    assert drawn == {kind.__name__ for kind in ALL} - {"IgnisError"}
