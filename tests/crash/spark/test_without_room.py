"""A driver is killed while its commit waits for room: the batch comes once, when there is some."""

import pytest

from tests.crash.spark.driver import Job
from tests.crash.spark.lives import Life, wait_for
from tests.crash.spark.scene import Scene
from tests.waiting import standing

pytestmark = [pytest.mark.nightly, pytest.mark.crash, pytest.mark.spark]

BATCH = 1_000
MESSAGES = 2 * BATCH


def drain(queue):
    """Take all that is there; which messages it was."""
    firing = queue.fire("all")
    queue.delete(firing)
    return firing.messages.column("number").to_pylist()


@pytest.mark.timeout(1800)
def test_a_blocked_commit_whose_driver_dies_is_exactly_once(tmp_path):
    scene = Scene(tmp_path / "scene", MESSAGES)
    with scene.store() as store:
        out = store.queue("out")
        out.admin.change_settings(max_size=BATCH)
        job = Job.of(scene, limit=BATCH)

        with Life(Job(**vars(job) | {"fault": "load.waiting=session"}), scene.said) as life:
            assert life.wait() == -9, life.last_words()
        assert out.browse().num_rows == BATCH

        dead = set(standing(store))
        with Life(job, scene.said) as life:
            # Not before it waits, for the batch that the other one had waited with.
            wait_for(lambda: bool(set(standing(store)) - dead), "a commit that waits for room")
            seen = drain(out)
            assert life.wait() == 0, life.last_words()
        seen += drain(out)

    assert sorted(seen) == list(range(MESSAGES))
