"""A process that writes to a bucket is killed: its files stay invisible, and are removed."""

import pytest

from tests.crash.test_kill_points import kill_and_go_on
from tests.crash.workloads import WORKLOADS
from tests.storages import IN_A_BUCKET

pytestmark = pytest.mark.crash

#: Where something may be in the bucket of which the catalog does not know, or the reverse.
FAULTS = ("load.writing", "load.before_commit", "compact.written", "vacuum.removing")


@IN_A_BUCKET
@pytest.mark.parametrize("fault", FAULTS)
def test_a_kill_leaves_nothing_behind_in_a_bucket(fault, address, tmp_path):
    kill_and_go_on(fault, WORKLOADS[fault], address, tmp_path)
