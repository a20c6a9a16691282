"""The short form of ``python -m tests.kills``."""

import pytest

from tests.kills.killing import WORKS, kill, prepare

KILLS = 8
#: The others differ in how handlers give rows.
IN_THE_GATE = ("caller", "output of batches")


@pytest.mark.crash
@pytest.mark.parametrize(
    "work",
    [
        pytest.param(work, marks=() if work in IN_THE_GATE else pytest.mark.nightly)
        for work in sorted(WORKS)
    ],
)
def test_rows_and_messages_agree_after_kills(store, work, tmp_path):
    prepare(store)
    found = kill(store, work, tmp_path, KILLS, seed=7)
    assert found.doing.total() == KILLS
    # How many are done depends on the machine; those that are not can be done, as `kill` checks.
    assert found.sold > 0
