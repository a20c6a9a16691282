"""Calls with a transaction that are late: `python -m tests.processes.time_limits`, in short."""

import json
import os
import subprocess
import sys

import pytest

CATALOGS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


def ran(*asked):
    """Run a campaign in a process of its own, which may crash; return its figures."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.processes.time_limits", *map(str, asked)],
        env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("catalog", CATALOGS)
@pytest.mark.parametrize(
    ("timeouts", "stops"), [(4, 2), pytest.param(500, 50, marks=pytest.mark.slow)]
)
def test_late_transactions_crash_nothing_and_leave_no_lock(catalog, timeouts, stops):
    how = ("--timeouts", timeouts, "--stops", stops, "--catalog", catalog)
    figures = ran(*how)
    assert figures["calls timed out"] >= timeouts
    assert (figures["stops"], figures["locks left"]) == (stops, 0)
