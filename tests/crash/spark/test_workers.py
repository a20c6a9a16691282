"""A Python worker that dies alone: Spark repeats its task, and its staged files stay invisible."""

import random
import time

import pytest

from tests.crash.spark import checkpoint
from tests.crash.spark.copied import at_the_end
from tests.crash.spark.driver import Job
from tests.crash.spark.lives import Life, kill_one
from tests.crash.spark.runs import live_through
from tests.crash.spark.scene import Scene

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.slow,
]
#: Two cores, and up to six attempts of a task: several workers may die of the same task.
RETRYING = "local[2,6]"


def stray_files(scene):
    """Unpublished files of the queue `out`."""
    with scene.store() as store:
        removable = store.admin.vacuum(grace=0, dry_run=True)
    return [location for location in removable if "/out/" in location]


@pytest.mark.parametrize(
    ("point", "leaves_files"),
    [
        ("source.reading", False),
        ("sink.writing", False),
        ("sink.staged", True),
        ("load.before_segment", False),
        ("load.segment_written", True),
        ("load.segment_synced", True),
    ],
)
def test_workers_that_die_at_a_point_change_nothing(tmp_path, point, leaves_files):
    """Each worker dies when it passes the point for the third time."""
    scene = Scene(tmp_path / "scene", 60_000)
    job = Job.of(scene, limit=3_000, master=RETRYING, fault=f"{point}:3=exit")
    with Life(job, scene.said) as life:
        assert life.wait() == 0, life.last_words()

    assert f"fault point {point}: killed" in scene.said.read_text()
    if leaves_files:
        assert stray_files(scene)
    counts, wrong = at_the_end(scene)
    assert wrong == []
    assert counts.delivered == 60_000


def test_workers_that_are_killed_at_random_moments_change_nothing(tmp_path):
    """One after each batch that is committed, so that some task always gets through."""
    scene = Scene(tmp_path / "scene", 60_000)
    chance = random.Random(7)
    killed = batches = 0
    job = Job.of(scene, limit=2_000, master=RETRYING)
    with Life(job, scene.said) as life:
        while life.is_alive():
            if (now := checkpoint.committed(scene.checkpoint)) > batches:
                batches = now
                time.sleep(chance.uniform(0.0, 0.5))
                killed += kill_one(life.workers(), chance)
            time.sleep(0.01)
        assert life.wait() == 0, life.last_words()

    counts, wrong = at_the_end(scene)
    assert wrong == []
    assert counts.delivered == 60_000
    assert killed >= 5


def test_a_query_that_fails_for_good_leaves_nothing_that_is_seen(tmp_path):
    """Without a second attempt, the query fails, and the next one continues where it was."""
    scene = Scene(tmp_path / "scene", 20_000)
    with Life(Job.of(scene, limit=2_000, fault="sink.staged:3=exit"), scene.said) as life:
        assert life.wait() == 1, life.last_words()
    assert stray_files(scene)

    [last] = live_through(scene, [], Job.of(scene, limit=2_000))

    assert last.wrong == ()
    assert last.counts.delivered == 20_000
