"""An executor without ignis says so, in one sentence; in a process and on a cluster of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The errors of queries."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.bare_executors", str(tmp_path_factory.mktemp("bare"))],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("work", ["table", "source", "load", "sink"])
def test_an_executor_without_ignis_says_what_to_install(told, work):
    assert "has no module queue_core: pip install ignis-queue==" in told[work]
    assert sys.executable in told[work]
