"""Figures as text: an unknown one is the word."""

import pytest

from queue_core.watching import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (0, "0"),
        (1234567, "1,234,567"),
        (2.0, "2"),
        (12.34, "12.3"),
        (0.5, "0.50"),
    ],
)
def test_numbers(value, text):
    assert wording.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (-3, "0.0 s"),
        (0.25, "0.2 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (7500, "2 h 5 min"),
        (86_400, "1 d"),
        (200_000, "2 d 7 h"),
    ],
)
def test_ages(seconds, text):
    assert wording.age(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "unknown"),
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (99_960, "100 kB"),
        (999_400, "999 kB"),
        (999_960, "1.0 MB"),
        (999_960_000_000, "1.0 TB"),
    ],
)
def test_sizes(count, text):
    assert wording.size(count) == text


def test_rates_messages_and_times():
    assert wording.rate(None) == "unknown"
    assert wording.rate(3) == "3/s"
    assert wording.counted(1) == "1 message"
    assert wording.counted(0) == "0 messages"
    assert wording.moment(None) is None
    assert wording.clock(wording.moment(1_700_000_000_000_000)) == "2023-11-14 22:13:20"
    assert wording.clock(None) == wording.NONE
