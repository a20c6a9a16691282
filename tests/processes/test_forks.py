"""Workers forked from a process that uses the store: ``python -m tests.processes.forks``."""

import pytest

from tests.processes.forks import KINDS, WORKERS, play

#: No connection is in use at the fork.
FREE = {"nothing", "nothing, inherited store"}
#: It depends on the moment of the fork.
EITHER = {"side tasks", "side tasks, the parent stays"}


@pytest.mark.crash
@pytest.mark.parametrize("kind", KINDS)
def test_forked_workers_lose_no_message(kind, address, tmp_path):
    found = play(address, kind, tmp_path)

    print(found)
    assert found.is_good, found
    if not address.catalog.startswith("sqlite") or kind in FREE:
        assert found.counts["refused"] == 0
        assert found.counts["acknowledged"] > 0
    elif kind not in EITHER:
        assert found.counts["refused"] == WORKERS
        assert found.counts["acknowledged"] == 0
