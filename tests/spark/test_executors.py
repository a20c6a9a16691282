"""Clusters of their own: executors without ignis say so, and two executors share side tasks."""

import os
import sys

import pytest

from tests.spark.rig import told_by

pytestmark = pytest.mark.nightly

LOCAL = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def test_an_executor_without_ignis_says_what_to_install(tmp_path):
    told = told_by("bare_executors", tmp_path, os.environ | LOCAL)

    assert told.keys() == {"table", "source", "load", "sink"}
    for error in told.values():
        assert "has no module queue_core: pip install ignis-queue==" in error
        assert sys.executable in error


def test_side_tasks_run_on_both_executors_of_a_cluster(tmp_path):
    moved = told_by("two_executors", tmp_path, os.environ | LOCAL)

    for task, count in (("sweep", 80), ("shovel", 160)):
        assert moved[task].keys() == {"0", "1"}
        assert sum(moved[task].values()) == count
