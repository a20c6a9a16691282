"""Texts of options become values; all faults are reported at once."""

from functools import partial

import pytest

from queue_core.errors import BadOption
from queue_core.values.options import Option, boolean, one_of, parse, size, whole, words

KNOWN = (Option("maxMessages", "…", whole(1), default=7), Option("tasks", "…", words))


def test_options_are_found_in_any_case_and_have_defaults():
    assert parse({"MAXMESSAGES": "1_000"}, KNOWN, "source") == {"maxMessages": 1000, "tasks": None}
    assert parse({}, KNOWN, "source") == {"maxMessages": 7, "tasks": None}


def test_all_faults_are_reported_at_once():
    with pytest.raises(BadOption) as caught:
        parse({"maxMessage": "5", "maxMessages": "x", "tasks": ","}, KNOWN, "source")

    assert str(caught.value) == (
        "source: unknown option 'maxMessage'; did you mean 'maxMessages'?; "
        "maxMessages='x': use a whole number, 1 or more; "
        "tasks=',': use one or more names, separated by commas"
    )


@pytest.mark.parametrize(
    ("parser", "text", "value"),
    [
        (size, "1048576", 1 << 20),
        (size, "64 kb", 64 << 10),
        (size, "1g", 1 << 30),
        (boolean, "TRUE", True),
        (boolean, "false", False),
        (words, " a, b,", ("a", "b")),
        (whole(0, 9), "9", 9),
        (one_of("onCommit", "settle"), "ONCOMMIT", "onCommit"),
    ],
)
def test_a_text_becomes_a_value(parser, text, value):
    assert parser(text) == value


@pytest.mark.parametrize(
    ("parser", "text", "message"),
    [
        (size, "much", "a number of bytes such as"),
        (size, "0", "at least 1 byte"),
        (boolean, "yes", "true or false"),
        (words, " , ", "one or more names"),
        (whole(0, 9), "10", "0 to 9"),
        (whole(1), "0", "a whole number, 1 or more"),
        (one_of("onCommit", "settle"), "setle", "onCommit, settle; did you mean 'settle'"),
    ],
)
def test_a_text_that_is_not_one_says_what_is_allowed(parser, text, message):
    with pytest.raises(ValueError, match=message):
        partial(parser, text)()
