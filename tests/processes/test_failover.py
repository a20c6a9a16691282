"""A standby of PostgreSQL takes over while processes load, fire and handle."""

import pytest

from tests.soak.__main__ import soaked
from tests.soak.cluster import TakeOver

pytestmark = [pytest.mark.nightly, pytest.mark.crash]


@pytest.mark.parametrize("catalog", ["synchronous", "asynchronous"])
def test_a_standby_takes_over(catalog, tmp_path):
    """Of an asynchronous one, only what it lacks may be lost or come again."""
    result = soaked(catalog, tmp_path, 3, 40, only=TakeOver)

    assert result.right, result.as_dict()
    assert sum(result.faults.values()) >= 2
    assert all(counts.delivered for counts in result.verdict.queues.values())
