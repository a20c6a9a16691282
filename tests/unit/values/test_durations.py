"""Durations are read alike everywhere: numbers, texts and timedeltas."""

from datetime import timedelta

import pytest

from queue_core.errors import BadOption
from queue_core.values.durations import check_seconds, check_timeout, in_seconds, parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        ("200ms", 0.2),
        (" 2 min ", 120.0),
        ("1.5H", 5400.0),
        ("15m", 900.0),
        ("1d", 86400.0),
        ("250 milliseconds", 0.25),
        ("1 second", 1.0),
        ("5 seconds", 5.0),
        ("1 minute", 60.0),
        ("15 Minutes", 900.0),
        ("1 hour", 3600.0),
        ("2hours", 7200.0),
        ("1 day", 86400.0),
        ("3 days", 259_200.0),
        ("1w", 604_800.0),
        ("1 week", 604_800.0),
        ("2 weeks", 1_209_600.0),
    ],
)
def test_texts_are_read(text, seconds):
    assert parse_seconds(text) == seconds
    assert check_seconds("timeout", text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "s", "weeks", "5 fortnights", "1 month", "5s 3m", "1m30s", "-1s", "inf", "nan", "1e999"],
)
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
