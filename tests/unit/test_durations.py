"""Durations are read alike everywhere: numbers, texts and timedeltas."""

from datetime import timedelta

import pytest

from queue_core.durations import check_seconds, check_timeout, in_seconds, parse_seconds
from queue_core.errors import BadOption


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        ("200ms", 0.2),
        (" 2 min ", 120.0),
        ("1.5H", 5400.0),
        ("15m", 900.0),
        ("1d", 86400.0),
    ],
)
def test_texts_are_read(text, seconds):
    assert parse_seconds(text) == seconds
    assert check_seconds("timeout", text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5 weeks", "5s 3m", "-1s", "inf", "nan", "1e999"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="a duration"):
        parse_seconds(text)
    with pytest.raises(BadOption, match=f"^timeout='{text}': use seconds or a duration such as"):
        check_seconds("timeout", text)


@pytest.mark.parametrize(
    "given", [-1, float("nan"), float("inf"), True, None, b"5s", timedelta(seconds=-1)]
)
def test_values_that_are_no_durations_are_refused(given):
    with pytest.raises(BadOption, match=r"^grace="):
        check_seconds("grace", given)


def test_numbers_and_timedeltas_are_read():
    assert check_seconds("grace", 3) == 3.0
    assert check_seconds("grace", timedelta(minutes=2)) == 120.0
    assert check_timeout("timeout", None) is None
    assert check_timeout("timeout", "0") == 0.0


def test_what_is_no_duration_is_left_to_its_check():
    assert in_seconds("soon") == "soon"
    assert in_seconds(None) is None
