"""Overwritten values, and the messages that a result depends on."""

from __future__ import annotations

import numpy as np

from queue_core.policies.inputs import Overwritten, PolicyResult


def test_a_result_depends_on_all_messages_that_it_changes_or_consulted():
    result = PolicyResult(
        kept=np.array([True]),
        deleted=np.array([4, 1]),
        consulted=np.array([2, 4]),
        overwritten=Overwritten(rows=np.array([0]), values={}),
    )
    assert result.depends_on.tolist() == [0, 1, 2, 4]
