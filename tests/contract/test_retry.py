"""Retry: failed messages come back each at their own time, and then stay as dead."""

import logging
import time

import pyarrow as pa
import pytest
from sqlalchemy import select

from queue_core import IdSet, Retry, Settlement, constant, exponential
from queue_core.catalog.records import retries as records
from queue_core.catalog.tables import slices
from queue_core.errors import BadOption, CatalogUnavailable, QueueFull
from queue_core.upkeep.leader.lease import LeaseLeader
from queue_core.upkeep.tasks import shovel as shovel_task
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.upkeep.tasks.task import Timing
from queue_core.values.due import NEVER
from queue_core.values.schema import TIMESTAMP
from queue_core.values.settings import QueueSettings
from queue_core.verbs import retry as module
from tests.clocks import make_due
from tests.factories import (
    ORDERS,
    aside,
    main,
    make_filled,
    make_queue,
    numbers_of,
    orders,
    run_task,
    with_sidelined,
)
from tests.waiting import PATIENCE, Caller

SECOND = 10**6
MINUTE = Retry(attempts=3, backoff=constant(60))
AT_ONCE = Retry(attempts=None, backoff=constant(0))


def due_times(store):
    """Seconds that messages wait, by their attempts; None: no time; infinity: dead."""
    with store.catalog.read() as connection:
        rows = connection.execute(
            select(slices.c.attempts, slices.c.moved_at, slices.c.due_at).where(
                slices.c.magazine == 1
            )
        ).all()
    return [
        (row.attempts, at if at is None or at == NEVER else round((at - row.moved_at) / SECOND))
        for row in rows
        for at in [row.due_at]
    ]


def retries(store):
    return Retries(store.catalog, store.storage)


def run(store):
    ran, _ = retries(store).run()
    assert [each.error for each in ran] == [None] * len(ran)
    return sum(each.moved for each in ran)


def failing(store, count=3, retry=MINUTE, name="orders", **settings):
    """A queue whose messages have all failed once."""
    return with_sidelined(store, count, name, retry=retry, **settings)


# --- when -----------------------------------------------------------------------------------------


def test_a_message_waits_for_its_time_and_then_comes_back(store):
    queue = failing(store)

    assert run(store) == 0
    assert due_times(store) == [(1, 60)]
    make_due(store, 59)
    assert run(store) == 0
    make_due(store, 1)
    assert run(store) == 3

    assert numbers_of(queue.fire("all").messages) == [0, 1, 2]
    assert aside(queue) == []
    assert store.admin.fsck().to_pylist() == []


def test_each_failure_waits_longer_and_the_last_one_leaves_it_dead(store):
    queue = failing(store, retry=Retry(attempts=3, backoff=exponential(10, factor=3)))
    seen = [due_times(store)]
    for _ in range(2):
        make_due(store)
        assert run(store) == 3
        queue.sideline(queue.fire("all"))
        seen.append(due_times(store))

    assert seen == [[(1, 10)], [(2, 30)], [(3, NEVER)]]
    make_due(store)
    assert run(store) == queue.shovel() == 0
    assert queue.shovel(force=True) == 3


def test_the_next_time_is_known_after_a_restart_and_jitter_keeps_a_slice_together(store):
    failing(store, 100, retry=Retry(backoff=constant(1000, jitter=0.5)))
    ((_, seconds),) = due_times(store)
    assert 500 <= seconds <= 1500
    _, left = retries(store).run()
    assert seconds - 5 < left <= seconds + 1
    assert retries(store).run(["another"]) == ([], float("inf"))


def test_messages_come_back_at_their_time_while_a_thread_looks(store):
    queue = make_filled(store, 1, retry=Retry(attempts=3, backoff=constant(0.5)))
    with store.side_tasks(tasks=["shovel"]):
        for _ in range(2):
            firing = queue.fire(timeout=PATIENCE)
            failed = time.monotonic()
            queue.sideline(firing)
            assert queue.fire(timeout=PATIENCE).ids.to_pylist() == firing.ids.to_pylist()
            assert time.monotonic() - failed >= 0.5
            queue.reload(firing.ids)


def test_a_new_queue_has_ten_attempts_and_a_queue_without_a_policy_the_interval(store):
    make_queue(store)
    assert str(QueueSettings().retry) == (
        "Retry(attempts=10, backoff=exponential(5, factor=3, max=3600, jitter=0.2))"
    )
    old = with_sidelined(store, 2, "old", retry=None)

    assert due_times(store) == [(1, None)]
    leader = LeaseLeader(store.catalog)
    tasks = SideTasks(store.catalog, store.storage, leader)
    assert tasks.run_due([old.info]) == []
    assert run_task(tasks, "shovel", old.info) == 2


# --- which ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "dead"), [({"on": "timeout"}, [1, 2]), ({"not_on": "timeout"}, [0])]
)
def test_only_some_kinds_of_failures_are_retried(store, retry, dead):
    queue = make_filled(store, 3, retry=Retry(backoff=constant(60), **retry))
    firing = queue.fire("all")
    queue.settle(
        Settlement.of(
            pa.table(
                {
                    "_message_id": firing.ids,
                    "outcome": ["sideline"] * 3,
                    "kind": ["timeout", "exception", None],
                }
            )
        )
    )
    make_due(store)

    assert run(store) == 3 - len(dead)
    assert aside(queue) == dead
    assert store.admin.fsck().to_pylist() == []


def test_the_policy_of_a_settlement_replaces_the_queues(store):
    queue = make_filled(store, 4, retry=None)
    one, other = queue.fire(2), queue.fire(2)
    queue.settle(Settlement.sideline(IdSet.of(one.ids)), retry=Retry(1))
    queue.settle(Settlement.sideline(IdSet.of(other.ids)), retry="Retry(backoff=constant(60))")
    assert sorted(due_times(store)) == [(1, 60), (1, NEVER)]
    with pytest.raises(BadOption, match="exception classes"):
        queue.settle(Settlement(), retry=Retry(on=KeyError))


def put_off(queue, *delays):
    """Fire messages, and let each be put off by some seconds."""
    ids = queue.fire("all").ids
    rows = {"_message_id": ids, "outcome": ["reload"] * len(ids), "delay": delays}
    assert queue.settle(Settlement.of(pa.table(rows))) == len(ids) == len(delays)


def test_a_message_can_be_put_off_without_a_failure(store):
    queue = make_filled(store, 4, retry=MINUTE)
    put_off(queue, 30, 30, None, 0)

    assert due_times(store) == [(0, 30)]
    assert aside(queue) == [0, 1]
    assert numbers_of(queue.browse()) == [2, 3]
    assert queue.failures().num_rows == 0
    make_due(store)
    assert run(store) == 2
    assert queue.peek(10).column("_attempt").to_pylist() == [0] * 4
    assert store.admin.fsck().to_pylist() == []


def test_a_message_is_put_off_however_often(store):
    queue = make_filled(store, 1, retry=MINUTE, max_deliveries=2)
    for _ in range(4):
        put_off(queue, 30)
        assert store.view("sideline").column("deliveries").to_pylist() == [0]
        make_due(store)
        assert run(store) == 1
    # A handler that reloads or fails is counted.
    queue.reload(queue.fire("all"))
    queue.sideline(queue.fire("all"))
    make_due(store)
    assert run(store) == 0
    assert due_times(store) == [(1, NEVER)]
    assert store.admin.fsck().to_pylist() == []


def test_a_settlement_can_give_the_time_itself(store):
    queue = make_filled(store, 3, retry=MINUTE)
    ids = queue.fire("all").ids
    moment = store.catalog.now() + 30 * SECOND
    at = pa.array([moment] * 2 + [None]).cast(pa.timestamp("us", "UTC"))
    rows = {
        "_message_id": ids,
        "outcome": ["sideline", "reload", "sideline"],
        "not_before": at,
        "dead": [None, None, True],
    }

    queue.settle(Settlement.of(pa.table(rows)))

    with store.catalog.read() as connection:
        found = connection.execute(select(slices.c.attempts, slices.c.due_at)).all()
    (put_off, failed, dead) = sorted(map(tuple, found))
    assert (put_off[0], failed[0], dead) == (0, 1, (1, NEVER))
    # In steps of a quarter of a second.
    assert all(0 <= due_at - moment <= SECOND // 4 for _, due_at in (put_off, failed))


def test_swept_messages_wait_as_the_policy_says(store):
    queue = make_filled(store, 2, retry=MINUTE)
    queue.fire("all")
    assert queue.sweep(0, dead_after=0) == 2
    assert due_times(store) == [(0, 60)]


def test_messages_that_were_fired_too_often_are_dead(store):
    queue = make_filled(store, 4, retry=MINUTE, max_deliveries=1)
    queue.fire(2)
    queue.reload(queue.fire(1))
    assert queue.sweep(0, dead_after=0) == 3
    queue.sideline(queue.fire("all"))

    make_due(store)
    assert run(store) == 0
    assert {at for _, at in due_times(store)} == {NEVER}


def test_messages_too_old_for_main_stay_as_dead(store):
    queue = failing(store, 3, AT_ONCE)
    queue.admin.change_settings(message_expiry=1e-6)
    assert run(store) == 0
    assert due_times(store) == [(1, NEVER)]
    assert retries(store).run()[1] == float("inf"), "nobody looks for them any more"


def test_messages_whose_own_time_is_over_stay_as_dead(store):
    queue = make_filled(store, 2, retry=AT_ONCE)
    queue.load(orders(3, 2), ttl=3.0)
    queue.sideline(queue.fire("all"))
    time.sleep(3.1)

    assert run(store) == 2
    assert aside(queue) == [2, 3, 4]
    assert due_times(store) == [(1, NEVER)]
    assert store.admin.fsck().to_pylist() == []


def test_a_retry_waits_for_no_room_and_loads_wait_for_it(store):
    queue = failing(store, 3, AT_ONCE, max_size=3)
    queue.load(orders(3, 3))

    # A shovel by a person keeps the bound. A retry had its room before, and may exceed it.
    assert queue.shovel() == 0
    assert run(store) == 3
    assert main(queue) == list(range(6))
    queue.delete(queue.fire(3))
    with pytest.raises(QueueFull):
        queue.load(orders(1, 6), timeout=0)
    queue.delete(queue.fire(1))
    queue.load(orders(1, 6), timeout=0)
    assert store.admin.fsck().to_pylist() == []


def test_messages_come_back_to_a_full_ring(store):
    queue = failing(store, 3, AT_ONCE, max_size=3, overflow="ring", shards=1)
    queue.load(orders(3, 3))
    assert run(store) == 3
    assert numbers_of(queue.browse()) == [3, 4, 5, 0, 1, 2]
    # The next load drops the oldest ones.
    queue.load(orders(1, 6))
    assert numbers_of(queue.browse()) == [1, 2, 6]

    queue.sideline(queue.fire(1), reason="again")
    queue.load(orders(1, 7))
    assert queue.choose("all").requeue() == 1


def test_messages_come_back_to_a_rendezvous(store):
    queue = make_queue(store, retry=AT_ONCE, max_size=0)
    loading = Caller(lambda: queue.load(orders(1)))
    firing = queue.fire(timeout=PATIENCE)
    loading.done()

    def edited():
        (message,) = queue.browse(magazine="sideline").column("_message_id").to_pylist()
        queue.edit(message, {"amount": 1.0})
        return 1

    for move in (lambda: run(store), queue.shovel, lambda: queue.choose("all").requeue(), edited):
        queue.sideline(firing)
        assert move() == 1
        firing = queue.fire()
        assert numbers_of(firing.messages) == [0]


def test_a_rate_spreads_retries_over_time(store):
    queue = failing(store, 10, AT_ONCE, shovel_rate=4.0)

    start = time.monotonic()
    assert run(store) == 4
    assert len(aside(queue)) == 6
    while aside(queue):
        run(store)
    # One process moves them, once a second: four, four and two.
    assert time.monotonic() - start >= 1.5


def test_many_due_slices_come_back_in_rounds(store, monkeypatch):
    monkeypatch.setattr(module, "ROUND_SLICES", 7)
    queue = make_filled(store, 60, each=3, shards=3, key="customer", retry=AT_ONCE)
    queue.sideline(queue.fire("all"))
    assert run(store) == 60
    assert main(queue) == list(range(60))


def test_messages_that_others_have_fired_from_the_sideline_are_left_to_them(store):
    queue = failing(store, 3, AT_ONCE)
    firing = queue.fire(2, magazine="sideline")
    assert run(store) == 1
    queue.reload(firing)
    assert run(store) == 2


def test_the_log_says_when_messages_can_come_back_again(store, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "queue_core")
    failing(store, 3, AT_ONCE)

    def fails(*_):
        raise CatalogUnavailable("the server is away")

    monkeypatch.setattr(shovel_task, "retry", fails)
    retries(store).run()
    monkeypatch.undo()
    assert run(store) == 3

    told = [each.message for each in caplog.records if "task retry of" in each.message]
    assert told[:1] == ["task retry of orders failed: the server is away"]
    assert [each.partition(" after ")[0] for each in told[1:]] == [
        "task retry of 'orders' works again"
    ]


# --- a person, and changes of the setting ---------------------------------------------------------


def test_messages_that_have_failed_again_since_the_search_wait_for_their_next_time(
    store, monkeypatch
):
    queue = failing(store)
    make_due(store)

    def find_and_lag(*given):
        monkeypatch.undo()
        found = records.find_due(*given)
        # Another process is faster.
        assert module.retry(store.catalog, queue.info, store.storage.uri)[0] == 3
        queue.sideline(queue.fire("all"))
        return found

    monkeypatch.setattr(records, "find_due", find_and_lag)

    assert module.retry(store.catalog, queue.info, store.storage.uri)[0] == 0
    assert due_times(store) == [(2, 60)]


def test_messages_that_were_held_during_the_search_for_expired_ones_are_not_dead(
    store, monkeypatch
):
    schema = pa.schema([*ORDERS, pa.field("_expires_at", TIMESTAMP)])
    queue = make_queue(store, schema=schema, retry=MINUTE)
    for number in range(2):
        queue.load([{"number": number}])
    queue.sideline(queue.fire("all"))
    make_due(store)
    find = module.find_candidates

    def hold_meanwhile(*given):
        held = queue.fire(1, magazine="sideline")
        found = find(*given)
        queue.reload(held)
        return found

    monkeypatch.setattr(module, "find_candidates", hold_meanwhile)

    assert run(store) == 2
    assert numbers_of(queue.peek(9)) == [0, 1]


def test_only_a_person_takes_messages_before_their_time(store):
    queue = failing(store)
    timings = {"shovel": Timing(0.0)}
    tasks = SideTasks(store.catalog, store.storage, LeaseLeader(store.catalog), timings=timings)

    assert [each.moved for each in tasks.run_due([queue.info]) if each.task == "shovel"] == [0]
    assert run_task(tasks, "shovel", queue.info) == 3, "a person asks for it"
    queue.sideline(queue.fire("all"))
    assert queue.shovel() == 3
    assert due_times(store) == []
    with store.catalog.read() as connection:
        assert connection.scalars(select(slices.c.due_at)).all() == [None]


def test_a_queue_that_gets_a_policy_retries_at_once_and_one_that_loses_it_keeps_its_times(store):
    queue, other = failing(store, retry=None), store.queue("orders")
    queue.load(orders(1, 3))
    other.admin.change_settings(retry=MINUTE)

    assert store.admin.fsck().to_pylist() == []
    assert run(store) == 3
    queue.delete(queue.fire(1))
    assert store.admin.fsck().to_pylist() == []
    # As the process of `queue` knows too.
    queue.sideline(queue.fire("all"))
    assert due_times(store) == [(2, 60)]
    other.admin.change_settings(retry=None)
    assert due_times(store) == [(2, 60)]
    make_due(store)
    assert run(store) == 3


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("max_attempts", 5, r"max_attempts is no longer a setting; use retry=Retry\(attempts=5\)"),
        ("shovel_backoff", 5, "shovel_backoff is no longer a setting; use retry=Retry"),
        ("retry", 5, "retry=5: give a Retry"),
        ("retry", "Retry(attempts=0)", "attempts=0"),
        ("retry", Retry(on=KeyError), "exception classes"),
    ],
)
def test_a_setting_that_is_no_policy_is_refused(store, name, value, told):
    with pytest.raises(BadOption, match=told):
        make_queue(store, **{name: value})


def test_a_queue_that_fails_keeps_no_other_waiting_and_rests(store, monkeypatch):
    failing(store, 2, AT_ONCE)
    other = failing(store, 1, AT_ONCE, name="other")
    retry = shovel_task.retry

    def fails(catalog, queue, *how):
        if queue.name == "orders":
            raise CatalogUnavailable("not now")
        return retry(catalog, queue, *how)

    monkeypatch.setattr(shovel_task, "retry", fails)
    tasks = retries(store)
    ran, left = tasks.run()

    assert {(each.queue, str(each.error)) for each in ran} == {
        ("orders", "not now"),
        ("other", "None"),
    }
    assert other.browse().num_rows == 1
    assert 0 < left <= 10
    assert tasks.run()[0] == []


def test_waiting_messages_are_not_looked_at(store):
    """The search uses the index of due times, however many messages wait."""
    queue = failing(store, 1)
    query = (
        f"SELECT id FROM slices WHERE queue_id = {queue.info.id} AND due_at <= 5 AND state = 0 "
        "ORDER BY due_at LIMIT 7"
    )
    with store.catalog.engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
        else:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            plan = connection.exec_driver_sql(f"EXPLAIN {query}").all()
    assert "slices_due" in str(plan)
