"""
Queue to queue through Spark is exactly once, even if the driver dies.

A copy dies at the points that matter most, and in the gate at the last of them.
`tests.crash.spark.campaign` is the long version.
"""

from dataclasses import replace

import pytest

from tests.crash.spark.driver import Job
from tests.crash.spark.runs import Death, live_through
from tests.crash.spark.scene import Scene

pytestmark = [pytest.mark.crash, pytest.mark.spark]

DEATHS = [
    # Fired, and Spark has not noted it: the next life has to find that ticket.
    Death(point="source.fired"),
    # A worker has staged its file, and nobody ever hears of it.
    Death(point="sink.staged", passage=2),
    # Published, and Spark has not noted it: the batch runs again, and must not be published again.
    Death(point="sink.committed"),
    # Published, noted, deleted at the source; then the checkpoint forgets the batch altogether.
    Death(point="acknowledge.committed", passage=2, loss="batch"),
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("messages", "routes", "point", "deaths"),
    [
        pytest.param(14_000, 0, "load.segment_synced", DEATHS[3:], id="once"),
        pytest.param(
            20_000, 0, "load.segment_synced", DEATHS, marks=pytest.mark.nightly, id="more often"
        ),
        # What goes to each of several queues is so little that it has no files.
        pytest.param(
            20_000, 3, "sink.staged", DEATHS, marks=pytest.mark.nightly, id="several queues"
        ),
    ],
)
def test_a_copy_that_dies_again_and_again_is_exactly_once(
    tmp_path, messages, routes, point, deaths
):
    """In the last life workers die, each when it has staged its third file; tasks are retried."""
    scene = Scene(tmp_path / "scene", messages, routes)
    job = Job.of(scene, limit=2_000)
    # Each of several workers may be about to die when it gets the task.
    last = replace(job, master="local[2,16]", fault=f"{point}:3=exit")

    lives = list(live_through(scene, deaths, job, last))

    assert [life.wrong for life in lives] == [()] * len(lives)
    assert [life.counts.right for life in lives] == [True] * len(lives)
    assert lives[-1].counts.delivered == messages
    assert f"fault point {point}: killed" in scene.said.read_text()
