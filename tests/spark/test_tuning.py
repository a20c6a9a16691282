"""`tuned` changes what it says, and nothing that the user has set; in a process of its own."""

import os
from pathlib import Path

import pytest

from pyspark_ignis.tuning import BRIEF_JAVA
from pyspark_ignis.tuning import MAX_BATCH_BYTES as BYTES
from tests.spark.rig import told_by

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the sessions were like."""
    folder = tmp_path_factory.mktemp("tuned")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYSPARK_PYTHON", "SPARK_HOME", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
    }
    # The Python that Spark would start by itself.
    other = folder / "bin/python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho another Python >&2\nexit 1\n")
    other.chmod(0o755)
    environment["PATH"] = f"{other.parent}{os.pathsep}{os.environ['PATH']}"
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    return {**told_by("tuned_session", folder, environment), "folder": folder}


def test_workers_import_pyspark_with_its_bytecode(told):
    file, compiled = told["worker"]

    assert file.startswith(told["home"])
    assert Path(file).samefile(Path(told["pyspark"], "worker.py"))
    assert compiled
    assert Path(told["home"]).parent == told["folder"] / "cache/ignis"


def test_a_brief_application_has_another_collector(told):
    assert told["java"] == BRIEF_JAVA
    assert set(told["collectors"]) == {"Copy", "MarkSweepCompact"}


def test_small_rows_lift_the_limit_of_bytes(told):
    # The largest number of 32 bits is the only one for which Spark does not add up bytes.
    assert int(told["bytes"].rstrip("b")) == (1 << 31) - 1
    assert told["small rows on a cluster"][BYTES] == str((1 << 31) - 1)
    assert BYTES not in told["own java"]


def test_small_rows_keep_limits_that_the_user_has_set(told):
    assert told["own bytes"][BYTES] == "1m"
    assert BYTES not in told["own rows"]


def test_messages_move_from_queue_to_queue_though_another_python_comes_first(told):
    assert sorted(told["moved"]) == [1, 2]


def test_a_cluster_keeps_its_home(told):
    assert told["cluster"] == {"spark.master": "spark://host:7077"}
    assert told["home on a cluster"] is None
    assert told["python of a cluster"] is None


def test_what_the_user_has_set_stays(told):
    assert told["own home"] == "/opt/spark"
    assert told["own python"] == "/opt/python"
    assert told["python of the builder"] is None
    assert told["own java"]["spark.driver.extraJavaOptions"] == "-Xss4m"
    assert "spark.driver.defaultJavaOptions" not in told["own java"]
    assert told["java of the environment"] == {"spark.master": "yarn"}


def test_a_client_and_a_running_session_stay_as_they_are(told):
    assert told["remote"] == {"spark.remote": "sc://host"}
    assert told["running"] == {}
