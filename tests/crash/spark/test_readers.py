"""
Each reader of a log gets its range once, queue to queue, even if drivers and persons die.

`tests.crash.spark.campaign --only readers-points readers-random` is the long version.
"""

import pytest

from tests.crash.spark.readers import ReadScene
from tests.crash.spark.runs import Death, live_through

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.nightly]

DEATHS = [
    # Taken in from the log, and not fired; then a person seeks back.
    Death(point="take_in.committed", passage=2),
    # Published, and Spark has not noted it.
    Death(point="sink.committed", passage=4),
    # Fired, and Spark has not noted it; before that, there is a replay.
    Death(point="source.fired", passage=3),
]


@pytest.mark.timeout(1800)
def test_each_reader_gets_its_range_once(tmp_path):
    scene = ReadScene(tmp_path / "scene")

    lives = list(live_through(scene, DEATHS, scene.reading(1_000)))

    assert [life.wrong for life in lives] == [()] * len(lives)
    assert lives[-1].counts.delivered == lives[-1].counts.attempted > 0
