"""Cables between loaders, consumers, the database and the bucket are cut, both ways or one way."""

import pytest

from tests.hosts import is_possible
from tests.soak.__main__ import CATALOGS, books
from tests.soak.network import Partition

pytestmark = [pytest.mark.nightly, pytest.mark.crash]


@pytest.mark.skipif(not is_possible(), reason="only root may make network namespaces")
def test_machines_lose_sight_of_each_other(tmp_path):
    tmp_path.chmod(0o755)
    with CATALOGS["network"](tmp_path, 4, spark=False) as (soak, faults):
        partitions = [fault for fault in faults if isinstance(fault, Partition)]
        result = soak.run(60, partitions)
        result.broken += books(soak.scene)

    assert result.right, result.as_dict()
    assert sum(result.faults.values()) >= 4
    assert all(counts.delivered for counts in result.verdict.queues.values())
