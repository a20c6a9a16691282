"""Crashes within a test."""

import pytest

from queue_core.errors import BadOption
from queue_core.support import faults
from queue_core.testing import crash_at


def test_the_body_ends_at_the_point():
    steps = []

    with crash_at("load.committed", passage=2):
        for step in range(3):
            steps.append(step)
            faults.point("load.committed")

    assert steps == [0, 1]
    faults.point("load.committed")


def test_a_point_that_is_not_reached_fails_and_is_disarmed():
    with (
        pytest.raises(AssertionError, match=r"load\.committed was not reached"),
        crash_at("load.committed"),
    ):
        pass

    faults.point("load.committed")


def test_another_exception_passes():
    with pytest.raises(ZeroDivisionError), crash_at("load.committed"):
        raise ZeroDivisionError

    faults.point("load.committed")


def test_an_unknown_point_or_passage_is_refused():
    with (
        pytest.raises(BadOption, match=r"did you mean 'load\.committed'"),
        crash_at("load.comitted"),
    ):
        pass
    with pytest.raises(BadOption, match="passage=0"), crash_at("load.committed", passage=0):
        pass
