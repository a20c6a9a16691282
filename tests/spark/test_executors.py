"""An executor without ignis says so, in one sentence; in a process and on a cluster of its own."""

import os
import sys

import pytest

from tests.spark.rig import told_by

pytestmark = pytest.mark.nightly


def test_an_executor_without_ignis_says_what_to_install(tmp_path):
    local = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    told = told_by("bare_executors", tmp_path, os.environ | local)

    assert told.keys() == {"table", "source", "load", "sink"}
    for error in told.values():
        assert "has no module queue_core: pip install ignis-queue==" in error
        assert sys.executable in error
