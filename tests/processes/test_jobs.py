"""Several processes share the jobs of a store, and kill -9 of the runner moves nothing twice."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from queue_core import Store
from queue_core.values.address import Address
from tests.books import audit
from tests.children import PATIENCE, Child
from tests.factories import main, make_queue, orders
from tests.job_steps import make_late, the_job
from tests.waiting import until

pytestmark = pytest.mark.each_catalog

#: How many messages there are, and how many a second the job moves.
MESSAGES, RATE = 3_000, 1_000
KILLS = 3


def run_tasks(address: Address) -> None:
    with Store(address) as store, store.side_tasks(tasks=["shovel"]):
        time.sleep(PATIENCE)


def has_ended(store: Store) -> bool:
    return the_job(store)["ended_at"] is not None


@pytest.mark.parametrize("to", [pytest.param(None, marks=pytest.mark.nightly), "other"])
def test_a_job_survives_its_runners_and_moves_each_message_once(store, address, tmp_path, to):
    queue = make_queue(store, shards=3, shovel_interval=None, retry=None)
    other = make_queue(store, "other", shards=2)
    queue.load(orders(MESSAGES))
    queue.sideline(queue.fire("all"))
    queue.start_shovel(rate=RATE, to=to)
    chance = random.Random(7)

    for number in itertools.count():
        runners = [
            Child(run_tasks, address, log=tmp_path / f"runner-{number}-{each}") for each in range(2)
        ]
        # Not before one of them runs the job, and then at any moment.
        before = the_job(store)["moved"]
        until(lambda before=before: the_job(store)["moved"] != before or has_ended(store))
        if number < KILLS:
            time.sleep(chance.uniform(0, 0.3))
        else:
            until(lambda: has_ended(store))
        for runner in runners:
            runner.kill()
            runner.wait_for_rollback(store)
        audit(store)
        there = (other if to else queue).browse()
        assert the_job(store)["moved"] == there.num_rows
        if has_ended(store):
            break
        make_late(store)

    assert the_job(store)["state"] == "done"
    assert main(other if to else queue) == list(range(MESSAGES))
    assert queue.browse(magazine="sideline").num_rows == 0
