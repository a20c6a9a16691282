"""The same through Spark Connect; in a process of its own, which can have no other session."""

import pytest

from tests.spark.rig import told_by

pytestmark = pytest.mark.nightly


def test_a_client_moves_and_settles_messages_and_hears_what_is_wrong(tmp_path):
    told = told_by("connected", tmp_path)

    assert told["session"] == "pyspark.sql.connect.session"
    assert told["moved"] == list(range(100))
    assert (told["left"], told["sidelined"]) == (0, 50)
    assert "the store has no queue 'otu'; did you mean 'out'" in told["refused"]
