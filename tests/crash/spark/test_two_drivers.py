"""Two drivers on one checkpoint: one of them dies of it, and each message arrives once."""

import pytest

from tests.crash.spark import checkpoint
from tests.crash.spark.driver import Job
from tests.crash.spark.lives import Life, wait_for
from tests.crash.spark.runs import live_through
from tests.crash.spark.scene import Scene

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path / "scene", 60_000)


@pytest.fixture
def job(scene):
    return Job.of(scene, limit=1_000)


def finish(scene, job):
    [last] = live_through(scene, [], job)
    assert last.wrong == ()
    assert last.counts.ok == scene.messages


def test_two_that_start_together_are_exactly_once(scene, job):
    with Life(job, scene.said) as one, Life(job, scene.said) as other:
        codes = [one.wait(), other.wait()]

    assert sorted(codes) in ([0, 1], [1, 1]), one.last_words()
    finish(scene, job)


def test_one_that_starts_while_another_works_takes_over(scene, job):
    with Life(job, scene.said) as one:
        wait_for(lambda: checkpoint.committed(scene.checkpoint) > 3, "batches of the first")
        with Life(job, scene.said) as other:
            codes = [one.wait(), other.wait()]

    assert 1 in codes
    finish(scene, job)


def test_one_that_was_stopped_and_wakes_up_later_does_no_harm(scene, job):
    """As after a long pause of its machine: another has gone on meanwhile."""
    with Life(job, scene.said) as one:
        wait_for(lambda: checkpoint.committed(scene.checkpoint) > 3, "batches of the first")
        one.pause()
        with Life(job, scene.said) as other:
            before = checkpoint.committed(scene.checkpoint)
            wait_for(lambda: checkpoint.committed(scene.checkpoint) > before + 3, "the second")
            one.go_on()
            codes = [one.wait(), other.wait()]

    assert 1 in codes
    finish(scene, job)
