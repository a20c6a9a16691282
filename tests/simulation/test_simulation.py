"""Some seeds of the simulation; `python -m tests.simulation --seeds 10000` runs more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from queue_core.catalog.records import publications
from tests.simulation import world
from tests.simulation.__main__ import told
from tests.simulation.scenario import Shape, run

#: Seeds of one test.
SEEDS = 5
#: Seeds that failed once, before the product was mended: restores beside a running query.
ONCE_FAILED = (258, 388, 430, 552, 687)
#: Seeds that failed once, before the simulation was mended: a restore between a firing and its
#: reading, and a log that was merged before it was looked at.
ONCE_MISTAKEN = (13065, 14669)


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.nightly) for first in range(SEEDS, 40, SEEDS))],
)
def test_no_history_loses_or_doubles_a_message(first):
    with world.folder() as folder:
        for seed in range(first, first + SEEDS):
            report = run(seed, folder)
            assert not report.wrong, told(report)
            assert report.counts["steps"] >= report.shape.steps - 1


@pytest.mark.nightly
def test_histories_that_once_failed(tmp_path):
    for seed in (*ONCE_FAILED, *ONCE_MISTAKEN):
        report = run(seed, tmp_path)
        assert not report.wrong, told(report)


def test_a_seed_is_a_history(tmp_path):
    """The same in this process, in which others ran before, and in a process of its own."""
    seed = 22
    assert Shape.of(seed) == Shape.of(seed)
    trace = run(seed, tmp_path).trace
    assert len(trace) > 10
    assert run(seed, tmp_path).trace == trace

    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed)]
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path.cwd())}
    printed = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout.splitlines()
    assert printed[: len(trace)] == trace


def test_a_failure_names_the_command_that_repeats_it(tmp_path, monkeypatch):
    """The product is broken on purpose: an acknowledgement does not compare the records."""
    monkeypatch.setattr(publications, "newest_ticket", lambda *_: None)
    monkeypatch.setattr(publications, "doubted_before", lambda *_: None)
    report = next(report for report in failing(tmp_path) if report.wrong)

    assert any(line.endswith("is lost") for line in report.wrong)
    assert f"python -m tests.simulation --seed {report.seed}" in told(report)


def failing(folder):
    """Run seeds whose histories use the broken part."""
    return (run(seed, folder) for seed in (239, 342, *ONCE_FAILED))
