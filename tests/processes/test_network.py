"""Cables between loaders, consumers, the database and the bucket are cut, both ways or one way."""

import pytest

from tests.hosts import is_possible
from tests.soak.__main__ import soaked
from tests.soak.network import Partition

pytestmark = [pytest.mark.nightly, pytest.mark.crash]


def test_machines_lose_sight_of_each_other(tmp_path):
    if not is_possible():
        pytest.skip("only root may make network namespaces")
    result = soaked("network", tmp_path, 4, 60, only=Partition)

    assert result.right, result.as_dict()
    assert sum(result.faults.values()) >= 4
    assert all(counts.delivered for counts in result.verdict.queues.values())
