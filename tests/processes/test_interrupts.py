"""Ctrl-C at random moments of calls; in short: ``python -m tests.processes.interrupts``."""

import pytest

from tests.processes.interrupts import BAD, play


@pytest.mark.crash
@pytest.mark.parametrize("times", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_an_interrupt_leaves_no_lock_and_loses_nothing(times, address, tmp_path):
    counts = play(address, times, 7, tmp_path)

    print(counts)
    assert {name: counts[name] for name in BAD} == dict.fromkeys(BAD, 0)
    assert counts["interrupts"] == times
    assert counts["loaded"] > 0
