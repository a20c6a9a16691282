"""Lose: suspects are fired apart and in ever smaller batches, and a culprit is sidelined."""

import time
from dataclasses import asdict

import pyarrow as pa
import pytest

from queue_core import Breaker, ConsumerPool, ConsumerTarget, Limit
from queue_core.catalog.holders import consumers
from queue_core.segments.reader import read_table
from queue_core.selection import suspects
from queue_core.selection.request import Demand
from queue_core.values.model import HandlingConsumer
from queue_core.values.outcomes import Settlement
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.fire import fire as fire_ticket
from queue_core.verbs.lose import lose
from tests.books import audit
from tests.clocks import make_due
from tests.contract.lost import fire, losses, start
from tests.contract.pools import Recorder
from tests.dump import backdate, dump
from tests.factories import make_filled, make_queue, numbers_of, orders

HOURS = 10_000.0


def until_alone(store, queue, guilty, name="till"):
    """Fire and die with one message until it stands alone; return how many were fired each time."""
    sizes = []
    while True:
        consumer = start(store, name)
        firing = queue.fire(100, consumer=consumer)
        numbers = numbers_of(firing.messages)
        if guilty not in numbers:
            queue.delete(firing)
            continue
        sizes.append(len(numbers))
        if len(numbers) == 1:
            return sizes


def test_what_a_dead_consumer_held_waits_again_at_its_place_and_is_no_delivery(store):
    queue = make_filled(store, 6)
    fire(queue, start(store), 4)

    start(store)

    assert numbers_of(queue.browse()) == [0, 1, 2, 3, 4, 5]
    assert losses(store) == {(1, 4): 4, (0, 0): 2}
    assert set(store.view("slices").column("deliveries").to_pylist()) == {0}
    audit(store)


def test_suspects_are_fired_apart_and_half_of_them_at_a_time(store):
    queue = make_filled(store, 10)
    fire(queue, start(store), 8)
    consumer = start(store)

    assert fire(queue, consumer) == [0, 1, 2, 3]
    assert fire(queue, consumer) == []
    queue.delete(queue.browse(selector="number < 4").column("_message_id"), consumer=consumer)
    assert fire(queue, consumer) == [4, 5, 6, 7]
    queue.delete(queue.browse(selector="number < 8").column("_message_id"), consumer=consumer)
    assert fire(queue, consumer) == [8, 9]


def test_suspects_of_a_subscription_are_fired_without_messages_of_its_log(store):
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(8))
    fire(reader, start(store), 8)
    consumer = start(store)
    for expected in ([0, 1, 2], [3, 4, 5]):
        firing = reader.fire(3, consumer=consumer)
        assert numbers_of(firing.messages) == expected
        reader.delete(firing)
    topic.load(orders(5, 8))

    firing = reader.fire(3, consumer=consumer)
    assert numbers_of(firing.messages) == [6, 7]
    reader.delete(firing)
    assert fire(reader, consumer, 3) == [8, 9, 10]


def test_a_consumer_takes_suspects_only_with_empty_hands(store):
    queue = make_filled(store, 3)
    fire(queue, start(store, "dead"), 1)
    till = start(store, "till")
    firing = queue.fire(1, consumer=till)
    start(store, "dead")

    refused = queue.fire(1, consumer=till)
    assert (len(refused), refused.stalled) == (0, True)
    queue.delete(firing)
    assert fire(queue, till) == [0]


def test_others_without_a_handler_take_suspects_and_messages_as_they_come(store):
    queue = make_filled(store, 3)
    fire(queue, start(store), 1)
    start(store)

    assert [numbers_of(queue.fire(5).messages) for _ in range(3)] == [[0], [1, 2], []]


def test_a_fallback_takes_a_suspect_only_if_no_other_message_matches_either(store):
    queue = make_filled(store, 2)
    fire(queue, start(store), 1)
    start(store)
    how = {"selector": "number = 1", "fallback": True}

    assert [numbers_of(queue.fire(1, **how).messages) for _ in range(2)] == [[1], [0]]


@pytest.mark.parametrize("outcome", ["delete", "sideline", "reload"])
def test_a_settlement_clears_a_suspect(store, outcome):
    queue = make_filled(store, 4)
    fire(queue, start(store), 4)
    firing = queue.fire(4, consumer=start(store))
    assert len(firing) == 2

    getattr(queue, outcome)(firing)

    assert losses(store).get((1, 4)) == 2
    assert (1, 4) not in losses(store, "sideline")
    audit(store)


def test_a_killer_is_sidelined_after_two_deaths_alone(store):
    queue = make_filled(store, 16)

    assert until_alone(store, queue, 5) == [16, 8, 4, 2, 1]
    assert until_alone(store, queue, 5) == [1]
    start(store)

    assert numbers_of(queue.browse(magazine="sideline")) == [5]
    (failure,) = queue.failures().to_pylist()
    assert (failure["kind"], failure["consumer"]) == ("killed", "till")
    assert failure["reason"] == (
        "the process that handled it ended 6 times; the last 2 times, it handled this message alone"
    )
    (aside,) = store.view("sideline").to_pylist()
    assert (aside["dead"], aside["attempts"]) == (True, 0)
    assert queue.shovel() == 0
    assert store.admin.fsck().num_rows == 0


def test_a_killer_that_a_person_returns_needs_one_more_death_alone(store):
    queue = make_filled(store, 1)
    for _ in range(2):
        assert fire(queue, start(store)) == [0]
    start(store)
    queue.choose(queue.failures().column("message_id")).requeue()
    assert fire(queue, start(store)) == [0]
    start(store)

    (_, again) = queue.failures().column("reason").to_pylist()
    assert "ended 3 times" in again


def test_losses_in_the_sideline_make_no_suspects(store):
    queue = make_filled(store, 2)
    queue.sideline(queue.fire(2))
    for _ in range(4):
        consumer = start(store)
        assert sorted(fire(queue, consumer, magazine="sideline")) == [0, 1]
    start(store)

    assert losses(store, "sideline") == {(0, 0): 2}


def test_mates_that_were_lost_with_a_killer_are_not_counted_out(store):
    queue = make_filled(store, 16, max_deliveries=3)
    until_alone(store, queue, 15)
    until_alone(store, queue, 15)
    start(store)

    assert queue.sweep() == 0
    assert queue.failures().column("kind").to_pylist() == ["killed"]


# --- a consumer that stays dead -------------------------------------------------------------------


def test_a_sweep_counts_once_what_a_dead_consumer_held_of_all_queues(store):
    queues = [make_queue(store, name) for name in ("one", "two")]
    dead = store.consumer("dead", beats=True)
    for queue in queues:
        queue.load(orders(3))
        fire(queue, dead)
    backdate(store, HOURS)

    assert [queue.sweep(dead_after=0) for queue in queues] == [3, 3]
    assert {(row["lost"], row["lost_among"]) for row in store.view("slices").to_pylist()} == {
        (1, 6)
    }
    audit(store)


def test_a_sweep_of_what_no_heartbeat_guards_or_a_living_consumer_has_done_with_counts_none(store):
    queue = make_filled(store, 4)
    fire(queue, store.consumer("plain"), 2)
    alive = store.consumer("alive", beats=True)
    backdate(store, HOURS)

    assert queue.sweep() == 2
    fire(queue, alive, 2)
    acknowledge(store.catalog, alive, 1, delete=False)
    backdate(store, HOURS)
    assert queue.sweep() == 2
    assert {row["lost"] for row in store.view("slices").to_pylist()} == {0}


def test_swept_suspects_that_return_are_fired_alone_and_sidelined_in_the_end(store):
    queue = make_filled(store, 2)
    for expected in ([0, 1], [0], [0]):
        consumer = store.consumer(f"of{len(expected)}-{time.time_ns()}", beats=True)
        assert fire(queue, HandlingConsumer(**asdict(consumer))) == expected
        backdate(store, HOURS)
        queue.sweep(dead_after=0)
        make_due(store)
        queue.shovel()
        queue.delete(queue.fire(1, selector="number = 1"))

    assert queue.failures().column("kind").to_pylist()[-1] == "killed"
    assert numbers_of(queue.browse(magazine="sideline")) == [0]
    swept = [row["messages"] for row in store.view("acts").to_pylist() if row["verb"] == "sweep"]
    assert swept == [2, 1, 1]


def test_a_restart_after_the_count_of_a_sweep_counts_no_second_time(store):
    queue = make_filled(store, 2)
    fire(queue, start(store))
    lose(store.catalog, consumer_id(store), 0)
    before = dump(store)["slices"]
    assert lose(store.catalog, consumer_id(store), 0) == 0
    assert dump(store)["slices"] == before

    start(store)

    assert losses(store) == {(1, 2): 2}
    assert fire(queue, start(store)) == [0]


def test_what_a_sweep_has_counted_is_in_nobodys_hands(store):
    queue = make_filled(store, 4)
    # Its process stood still for so long that it counted as dead.
    till = start(store)
    fire(queue, till, 2)
    lose(store.catalog, till.id, 0)

    assert fire(queue, till) == [2, 3]


def test_what_counts_as_lost_is_put_off_without_a_delivery(store):
    queue = make_filled(store, 2)
    till = start(store)
    ids = queue.fire(2, consumer=till).ids
    lose(store.catalog, till.id, 0)

    rows = pa.table({"_message_id": ids, "outcome": ["reload"] * 2, "delay": [30, 30]})
    assert queue.settle(Settlement.of(rows), till) == 2
    assert set(store.view("slices").column("deliveries").to_pylist()) == {0}


def test_a_living_consumer_loses_nothing(store):
    queue = make_filled(store, 2)
    fire(queue, start(store))
    before = dump(store)

    assert lose(store.catalog, consumer_id(store), 60.0) == 0
    assert dump(store) == before


def consumer_id(store):
    with store.catalog.read() as connection:
        return consumers.by_name(connection, "till").id


# --- beside other rules of a queue ----------------------------------------------------------------


def test_with_groups_no_message_overtakes_a_suspect_of_its_group(store):
    queue = make_queue(store, group="customer")
    queue.load(orders(6, customers=3))
    assert fire(queue, start(store), 2) == [0, 1]

    consumer = start(store)
    # One of two suspects; then only the other's shard is left, and it waits for empty hands.
    assert fire(queue, consumer) == [0]
    assert fire(queue, consumer) == []
    assert numbers_of(queue.fire(10).messages) == [1]
    assert numbers_of(queue.fire(10).messages) == [2]
    assert numbers_of(queue.fire(10).messages) == []


def test_no_message_overtakes_one_of_its_group_that_was_lost_meanwhile(store, monkeypatch):
    queue = make_queue(store, group="customer")
    queue.load(orders(4, customers=2))
    fire(queue, start(store), 1)
    look = suspects.look

    def lose_meanwhile(*arguments):
        found = look(*arguments)
        start(store)
        return found

    monkeypatch.setattr(suspects, "look", lose_meanwhile)

    assert numbers_of(queue.fire(10).messages) == [1]
    monkeypatch.undo()
    assert numbers_of(queue.fire(10).messages) == [0]


def test_no_message_overtakes_a_suspect_of_its_group_that_a_selector_leaves(store):
    queue = make_queue(store, shards=1, group="customer")
    queue.load(orders(4, customers=2))
    fire(queue, start(store), 1)
    start(store)

    assert numbers_of(queue.fire(10, selector="number = 2").messages) == []
    assert numbers_of(queue.fire(10).messages) == [0]
    assert numbers_of(queue.fire(10).messages) == [1]


def test_a_suspect_behind_the_head_of_its_group_waits(store):
    queue = make_queue(store, group="customer")
    queue.load(orders(2, customers=1))
    first = queue.fire(1)
    queue.delete(first)
    queue.load(orders(1, 2, customers=1))
    assert fire(queue, start(store), 5) == [1]
    start(store)

    assert numbers_of(queue.fire(5).messages) == [1]
    assert numbers_of(queue.fire(5).messages) == []


def test_a_suspect_that_came_back_behind_its_group_holds_nobody_back(store):
    """It waits for an older message, and that does not wait for it."""
    queue = make_queue(store, shards=1, group="customer", key="customer")
    queue.load(orders(3, customers=2))
    fire(queue, start(store), 1)
    queue.load(orders(1, 3, customers=2))
    backdate(store, HOURS)
    assert (queue.sweep(dead_after=0), queue.shovel()) == (1, 1)

    assert losses(store) == {(1, 1): 1, (0, 0): 3}
    assert numbers_of(queue.fire(10).messages) == [1, 2]
    assert numbers_of(queue.fire(10).messages) == []


def test_a_suspect_that_nobody_takes_keeps_only_its_group_waiting(store):
    queue = make_queue(store, shards=1, group="customer", key="customer")
    queue.load(orders(6, customers=3))
    fire(queue, start(store), 1)
    till = start(store)

    assert fire(queue, till, 9, selector="customer != 'customer-0'") == [1, 2]


def test_a_selector_takes_suspects_and_leaves_those_that_it_does_not_match(store):
    queue = make_filled(store, 8)
    fire(queue, start(store), 4)
    till = start(store)

    assert fire(queue, till, selector="number >= 4") == [4, 5, 6, 7]
    assert fire(queue, till, selector="number = 3") == []
    assert numbers_of(queue.fire(5, selector="number = 3").messages) == [3]


@pytest.mark.parametrize("given", [{}, {"max_bytes": 1}])
def test_an_order_holds_within_suspects_of_groups(store, given):
    queue = make_queue(store, shards=3, group="customer")
    queue.load(orders(9, customers=9))
    lost = fire(queue, start(store), 6)
    start(store)

    first = queue.fire(1, order_by="number DESC", **given)
    second = queue.fire(2, order_by="number DESC")

    assert numbers_of(first.messages) + numbers_of(second.messages) == sorted(lost)[:-4:-1]


@pytest.mark.parametrize("how", [{"order_by": "number DESC"}, {"order": "global"}])
def test_an_order_holds_within_suspects_and_within_others(store, how):
    queue = make_filled(store, 4, shards=2)
    fire(queue, start(store), 2)
    queue.load(orders(2, 4))
    start(store)
    got = [numbers_of(queue.fire(9, **how).messages) for _ in range(3)]

    assert [len(each) for each in got] == [1, 1, 4]
    for each in got:
        assert each == sorted(each, reverse="order_by" in how)


def test_priorities_hold_within_suspects(store):
    queue = make_filled(store, 6, priority="number")
    assert fire(queue, start(store), 4) == [5, 4, 3, 2]
    start(store)

    got = [numbers_of(queue.fire(9).messages) for _ in range(3)]
    assert got == [[5, 4], [3, 2], [1, 0]]


def test_limits_count_suspects_as_others(store):
    queue = make_filled(store, 6, limits=[Limit(in_flight=3)])
    assert fire(queue, start(store), 6) == [0, 1, 2]
    start(store)

    assert numbers_of(queue.fire(9).messages) == [0]
    assert numbers_of(queue.fire(9).messages) == [1]
    assert numbers_of(queue.fire(9).messages) == [2]
    assert numbers_of(queue.fire(9).messages) == []


def test_a_firing_says_that_a_limit_refuses_suspects_alone(store):
    queue = make_filled(store, 2, limits=[Limit(in_flight=1)])
    assert fire(queue, start(store), 1) == [0]
    start(store)
    assert numbers_of(queue.fire(1, selector="number = 1").messages) == [1]

    refused = queue.fire(1)
    assert (len(refused), refused.opens_in is None) == (0, False)


def test_limits_of_values_count_suspects_as_others(store):
    queue = make_queue(store, limits=[Limit(column="customer", in_flight=1)])
    queue.load(orders(6, customers=3))
    assert fire(queue, start(store), 6) == [0, 1, 2]
    start(store)

    assert [numbers_of(queue.fire(9).messages) for _ in range(4)] == [[0], [1], [2], []]


def test_compaction_mixes_no_suspects_with_others(store):
    queue = make_filled(store, 40, each=1)
    fire(queue, start(store), 20)
    start(store)

    queue.admin.compact()

    assert losses(store) == {(1, 20): 20, (0, 0): 20}
    audit(store)


def test_a_firing_of_suspects_says_that_there_are_others(store):
    """A pool looks again at once."""
    queue = make_filled(store, 40)
    fire(queue, start(store), 20)
    start(store)

    for count, found in ((5, 5), (100, 10), (100, 5)):
        firing = queue.fire(count, selector="number >= 0")
        assert (len(firing), firing.more) == (found, True)
        queue.delete(firing)
    assert len(queue.fire(100, selector="number >= 0")) == 20


def test_suspects_are_found_beside_a_queue_with_groups(store):
    red, blue = make_queue(store, "red", group="customer"), make_queue(store, "blue")
    blue.load(orders(3))
    first = blue.fire(1)
    assert fire(blue, start(store), 1) == [1]
    start(store)
    blue.reload(first)
    queues, uri = [red.info, blue.info], store.storage.uri
    demand = Demand(max_messages=9)
    request = demand.request(queues, demand.selection(queues), uri)
    query = store.consumer("query")

    # One that waits would look for others without end.
    fired = [fire_ticket(store.catalog, query, request, waits=False) for _ in range(2)]
    assert [numbers_of(read_table(each.plan)) for each in fired] == [[1], [0, 2]]


# --- pools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [{}, {"concurrency": 4}, {"breaker": Breaker()}, {"selector": "number >= 0"}]
)
def test_a_pool_handles_suspects_and_others(store, how):
    queue, recorder = make_queue(store, shards=2), Recorder()
    other = make_queue(store, "other")
    queue.load(orders(150))
    other.load(orders(25, 150))
    fire(queue, start(store), 100)
    with store.catalog.read() as connection:
        till = consumers.by_name(connection, "till")
    fire(other, till, 15)

    names = "orders" if how else ["orders", "other"]
    with ConsumerPool(store, names, recorder, name="till", tasks=[], batch=8, **how) as pool:
        assert pool.drain(60)

    assert recorder.numbers == list(range(150 if how else 175))


def test_suspects_of_a_queue_do_not_wait_for_the_backlog_of_another(store):
    queue, other = make_queue(store), make_queue(store, "other")
    queue.load(orders(1))
    other.load(orders(3, 1))
    fire(queue, start(store, "dead"), 1)
    with ConsumerTarget(store, ["orders", "other"], lambda: None) as target:
        of_orders, of_other = target.consumers
        held = of_other.pull()
        start(store, "dead")

        assert of_orders.pull() is None
        assert of_other.pull() is None
        other.delete(held)
        suspect = of_orders.pull()
        assert numbers_of(suspect.messages) == [0]
        assert of_other.pull() is None
        queue.delete(suspect)
        assert numbers_of(of_other.pull(5).messages) == [2, 3]
