"""How a text says how much of a log is kept."""

import pytest

from queue_core.values.durations import LONGEST_SECONDS
from queue_core.values.log_limits import LogLimits, parsed

DAY = 86_400.0


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (None, (None, None)),
        ("7 days", (7 * DAY, None)),
        ("0s", (0, None)),
        ("50 GB", (None, 50 * 10**9)),
        ("1.5tb", (None, 15 * 10**11)),
        ("100B", (None, 100)),
        ("7 days, 50 GB", (7 * DAY, 50 * 10**9)),
        ("50 GB,7d", (7 * DAY, 50 * 10**9)),
        ("999999999 days", (LONGEST_SECONDS, None)),
    ],
)
def test_a_time_a_size_or_both(text, limits):
    assert parsed(text) == LogLimits(*limits)


@pytest.mark.parametrize("text", ["", ",", "soon", "1d,", "1 GB, 1 GB", "1d, 1d", "-1s"])
def test_anything_else_is_no_limit(text):
    assert parsed(text) is None
