"""The short form of ``python -m tests.kills``."""

import pytest

from tests.kills.killing import WORKS, kill, prepare

KILLS = 12


@pytest.mark.crash
@pytest.mark.parametrize("work", sorted(WORKS))
def test_rows_and_messages_agree_after_kills(store, work, tmp_path):
    prepare(store)
    found = kill(store, work, tmp_path, KILLS, seed=7)
    assert found.doing.total() == KILLS
    # How many are done depends on the machine; those that are not can be done, as `kill` checks.
    assert found.sold > 0
