"""
Streams of shovels and sweeps do each message's move once, even if drivers and workers die.

Two streams of one task over two queues; `tests.crash.spark.side_tasks --campaign` is the long run.
"""

import random

import pytest

from tests.crash.spark.side_tasks import TaskScene, die, finish

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

DEATHS = [
    # Claimed, and Spark has not logged it: the next life has to find the round.
    ("task.claimed", "driver"),
    # Done, and nobody knows: Spark plans the batch again.
    ("task.done", "driver"),
    # Workers alone: Spark repeats their tasks.
    (None, "worker"),
]


@pytest.mark.timeout(1800)
def test_side_tasks_that_die_again_and_again_skip_and_repeat_nothing(tmp_path, address):
    scene = TaskScene(tmp_path, address)
    chance = random.Random(3)

    for point, victim in DEATHS:
        die(scene, chance, point, victim)

    assert finish(scene) == []
