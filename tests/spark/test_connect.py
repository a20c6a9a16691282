"""The same through Spark Connect; in a process of its own, which can have no other session."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What came of a client's work."""
    folder = tmp_path_factory.mktemp("connect")
    command = [sys.executable, "-m", "tests.spark.connected", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_spark_connect(told):
    assert told["session"] == "pyspark.sql.connect.session"


def test_a_stream_moves_every_message_from_queue_to_queue(told):
    assert told["moved"] == list(range(100))
    assert told["left"] == 0


def test_a_stream_settles_messages(told):
    assert told["sidelined"] == 50


def test_what_is_wrong_is_told_to_the_client(told):
    assert "the store has no queue 'otu'; did you mean 'out'" in told["refused"]
