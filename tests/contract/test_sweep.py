"""Sweep: messages that were fired too long ago and never finished go to the sideline."""

import pytest

from queue_core.catalog.holders import consumers
from queue_core.errors import BadOption
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.sweep import sweep
from tests.dump import backdate, dump
from tests.factories import make_filled, make_queue, numbers_of, orders

pytestmark = pytest.mark.each_catalog


def fired_long_ago(store, count=5, **whose):
    queue = make_filled(store, count)
    firing = queue.fire("all", **whose)
    backdate(store, 1000)
    return queue, firing


def test_stuck_messages_go_to_the_sideline_without_a_failure_counted(store):
    """Of a consumer that promises no heartbeat: its messages are judged by their age alone."""
    queue, firing = fired_long_ago(store, 7)
    queue.reload(firing.ids.take([1, 4]))
    queue.fire("all")
    backdate(store, 1000)

    assert queue.sweep(500) == 7
    swept = queue.browse(magazine="sideline")
    assert swept.column("_message_id").to_pylist() == firing.ids.to_pylist()
    assert swept.column("_attempt").to_pylist() == [0] * 7
    assert queue.browse().num_rows == 0
    # They are not their consumer's any more.
    assert queue.delete(firing) == queue.sideline(firing) == queue.reload(firing) == 0


def test_what_was_fired_lately_is_left_alone(store):
    queue, _ = fired_long_ago(store)
    queue.load(orders(3, 5))
    queue.fire("all")
    assert queue.sweep(500) == 5
    assert numbers_of(queue.browse()) == [5, 6, 7]


def test_the_age_is_the_queues_setting_unless_told(store):
    queue, _ = fired_long_ago(store)
    assert queue.sweep() == 0  # 20 minutes
    queue.admin.change_settings(sweep_after=900.0)
    assert queue.sweep() == 5


def test_a_sweep_that_has_begun_takes_nothing_by_an_age_that_its_queue_has_no_longer(store):
    queue, _ = fired_long_ago(store)
    queue.admin.change_settings(sweep_after=900.0)
    known = queue.refresh().info
    queue.admin.change_settings(sweep_after=1200.0)

    assert sweep(store.catalog, known) == 0


def test_what_was_never_fired_is_never_swept(store):
    queue, firing = fired_long_ago(store)
    queue.sideline(firing)
    queue.shovel()  # stamps them with a time
    queue.load(orders(3, 5))
    backdate(store, 1000)
    assert queue.sweep(0) == 0
    assert queue.browse().num_rows == 8


def test_a_living_consumer_keeps_what_it_works_on(store):
    consumer = store.consumer("query", beats=True)
    queue, _ = fired_long_ago(store, consumer=consumer)
    before = dump(store)

    assert queue.sweep(10) == 0
    assert dump(store) == before
    store.catalog.write(lambda connection: consumers.heartbeat(connection, consumer))
    assert queue.sweep(10, dead_after=30) == 0
    assert queue.sweep(10, dead_after=0) == 5


def test_what_a_living_consumer_is_done_with_and_left_behind_is_swept(store):
    """Acknowledged, but the query has settled only some of its messages."""
    consumer = store.consumer("query", beats=True)
    queue, _ = fired_long_ago(store, consumer=consumer)
    queue.load(orders(2, 5))
    later = queue.fire("all", consumer=consumer)
    backdate(store, 1000)
    acknowledge(store.catalog, consumer, later.ticket.number - 1, delete=False)

    assert queue.sweep(10) == 5
    assert numbers_of(queue.browse()) == [5, 6]


def test_what_was_fired_from_the_sideline_comes_back_to_it(store):
    queue, firing = fired_long_ago(store)
    queue.sideline(firing)
    queue.fire(2, magazine="sideline")
    backdate(store, 1000)
    assert queue.sweep(500) == 2
    assert numbers_of(queue.browse(magazine="sideline")) == [2, 3, 4, 0, 1]


@pytest.mark.parametrize(
    "wrong", [{"older_than": -1}, {"older_than": "soon"}, {"dead_after": None}]
)
def test_an_impossible_age_is_refused(store, wrong):
    (name,) = wrong
    with pytest.raises(BadOption, match=f"{name}="):
        make_queue(store).sweep(**wrong)
