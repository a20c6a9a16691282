"""Side tasks: of all processes that ask, one runs a due task; only the leader sweeps."""

import logging
import uuid
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from queue_core import Store
from queue_core.catalog.holders import leases
from queue_core.catalog.identity import clock
from queue_core.catalog.records import schedule
from queue_core.errors import (
    BadOption,
    CatalogUnavailable,
    DamagedSegment,
    NotLeading,
    QueueDeactivated,
)
from queue_core.upkeep.leader.lease import LeaseLeader
from queue_core.upkeep.tasks import expire as expire_task
from queue_core.upkeep.tasks import runner
from queue_core.upkeep.tasks import shovel as shovel_task
from queue_core.upkeep.tasks import sweep as sweep_task
from queue_core.upkeep.tasks.registry import TASKS
from queue_core.upkeep.tasks.runner import Ran, SideTasks
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.upkeep.tasks.task import Timing
from queue_core.verbs.operator.jobs import Jobs
from queue_core.verbs.shovel import Shovelful
from tests.contract.task_streams import with_sidelined
from tests.dump import age, backdate, dump, load_earlier
from tests.factories import make_filled, make_queue, numbers_of, orders, run_task
from tests.statements import transactions

#: Everything is due whenever somebody comes.
ALWAYS = {task: Timing(0.0) for task in TASKS}


@pytest.fixture
def leader(store):
    leader = LeaseLeader(store.catalog)
    leader.start()
    yield leader
    leader.stop()


@pytest.fixture
def stranger(store):
    """An instance that is not the leader, since another one is."""
    store.catalog.write(lambda c: leases.hold(c, "sweeper", "another", 60))
    return LeaseLeader(store.catalog)


def tasks_of(store, leader, *tasks, **options):
    """The side tasks of these names, or all, of one process."""
    return SideTasks(store.catalog, store.storage, leader, tasks=tasks or TASKS, **options)


def outcomes(ran):
    return [(done.task, done.queue, done.moved) for done in ran]


def test_what_is_due_is_run_and_told(store, leader):
    queue = with_sidelined(store)
    queue.load(orders(2, 5))
    queue.fire("all")
    backdate(store, 7200)

    ran = tasks_of(store, leader, timings=ALWAYS).run_due([queue.info])

    assert outcomes(ran)[:2] == [("shovel", "orders", 5), ("sweep", "orders", 2)]
    assert [done.error for done in ran] == [None] * len(TASKS)


def test_of_two_who_come_one_runs_it(store, leader):
    queue = with_sidelined(store)
    timings = {"shovel": Timing(600.0, first=0.0)}
    one, other = (tasks_of(store, leader, "shovel", timings=timings) for _ in range(2))

    assert outcomes(one.run_due([queue.info])) == [("shovel", "orders", 5)]
    assert other.run_due([queue.info]) == one.run_due([queue.info]) == []


def test_a_look_that_finds_nothing_due_writes_nothing(store, leader, monkeypatch):
    """The first look only plans when everything is due."""
    queue = with_sidelined(store)
    tasks = tasks_of(store, leader)
    assert tasks.run_due([queue.info]) == []
    before = dump(store)
    monkeypatch.setattr(store.catalog, "write", None)

    assert tasks.run_due([queue.info]) == []
    monkeypatch.undo()
    assert dump(store) == before


def test_a_shovel_is_due_as_the_queues_setting_says(store, leader):
    often = with_sidelined(store, shovel_interval=0.001)
    never = with_sidelined(store, name="never", shovel_interval=None)
    tasks = tasks_of(store, leader, "shovel")
    tasks.run_due([often.info, never.info])
    store.catalog.now()

    ran = []
    while not ran:
        ran = tasks.run_due([often.info, never.info])

    assert outcomes(ran) == [("shovel", "orders", 5)]
    assert never.browse().num_rows == 0


def test_only_the_leader_sweeps_and_the_others_leave_it_to_him(store, stranger):
    queue = make_filled(store, 3)
    queue.fire("all")
    backdate(store, 7200)
    tasks = tasks_of(store, stranger, "sweep", timings=ALWAYS)

    assert tasks.run_due([queue.info]) == []
    with pytest.raises(NotLeading):
        run_task(tasks, "sweep", queue.info)

    store.catalog.write(lambda c: leases.release(c, "sweeper", "another"))
    stranger.start()
    assert outcomes(tasks.run_due([queue.info])) == [("sweep", "orders", 3)]
    stranger.stop()


def test_a_leader_that_has_lost_its_lease_sweeps_nothing(store, leader):
    queue = make_filled(store, 3)
    queue.fire("all")
    backdate(store, 7200)
    store.catalog.write(lambda c: leases.release(c, "sweeper", leader.holder))
    store.catalog.write(lambda c: leases.hold(c, "sweeper", "another", 60))
    assert leader.leads(), "it has not heard of it yet"

    (ran,) = tasks_of(store, leader, "sweep", timings=ALWAYS).run_due([queue.info])

    assert isinstance(ran.error, NotLeading)
    assert numbers_of(queue.browse()) == [0, 1, 2]


def stuck(store, name, count):
    queue = make_filled(store, count, name)
    queue.fire("all")
    return queue


def test_the_leader_sweeps_the_queues_of_all(store, leader):
    """Its own process works on one of them, or on none."""
    own, others = stuck(store, "orders", 3), stuck(store, "parcels", 2)
    make_queue(store, "idle")
    backdate(store, 7200)
    tasks = tasks_of(store, leader, "sweep", timings=ALWAYS)

    assert outcomes(tasks.run_due([own.info])) == [("sweep", "orders", 3), ("sweep", "parcels", 2)]
    others.fire("all", magazine="sideline")
    backdate(store, 7200)
    assert outcomes(tasks.run_due([])) == [("sweep", "parcels", 2)]


def test_tasks_of_many_idle_queues_are_few_transactions(store, leader):
    infos = [make_queue(store, f"q{n}", shards=1, message_expiry=9e4).info for n in range(100)]

    def run(*tasks, **options):
        begun.clear()
        made = tasks_of(store, leader, *tasks, **options)
        return len(made.run_due(infos)), len(begun)

    with transactions(store) as begun:
        # One looks at the schedule, and two for each task write to it: the first look only claims.
        assert run("expire", "compact") == (0, 5)
        ran, count = run("expire", "compact", timings=ALWAYS)
        assert ran == 200
        assert count <= 20
        ran, count = run("sweep", timings=ALWAYS)
        assert ran == 0
        assert count <= 4


def test_of_many_queues_those_with_work_are_run(store, leader, monkeypatch):
    monkeypatch.setattr(runner, "TOGETHER", 4)
    queues = [
        make_queue(store, f"q{n}", shards=1, message_expiry=3600.0 if n % 2 else None)
        for n in range(10)
    ]
    for queue in queues:
        queue.load(orders(3))
    own = store.create_queue(
        "own", pa.schema([("until", pa.timestamp("us", "UTC"))]), expires_at="until"
    )
    own.load([{"until": datetime(2001, 1, 1, tzinfo=UTC)}])
    gone = make_queue(store, "gone", queue_expiry=3600.0, message_expiry=None)
    small = make_filled(store, 64, "small", each=1, shards=1)
    load_earlier(store, 7200)
    age(store, 7200)
    tasks = tasks_of(store, leader, "expire", "compact", timings=ALWAYS)

    ran = tasks.run_due([queue.refresh().info for queue in (*queues, own, gone, small)])

    moved = {(done.task, done.queue): done.moved for done in ran if done.moved}
    assert moved == {
        **{("expire", f"q{n}"): 3 for n in range(1, 10, 2)},
        ("expire", "own"): 1,
        ("compact", "small"): 64,
    }
    with pytest.raises(QueueDeactivated):
        gone.load(orders(1))


def test_a_clock_that_jumped_keeps_each_queue_from_expiring(store, leader, monkeypatch):
    def jumped(_):
        raise CatalogUnavailable("the clock has jumped")

    monkeypatch.setattr(clock, "check", jumped)
    queues = [make_queue(store, f"q{n}", message_expiry=3600.0).info for n in range(3)]
    tasks = tasks_of(store, leader, "expire", timings=ALWAYS)

    ran = tasks.run_due(queues)
    assert [str(done.error) for done in ran] == ["the clock has jumped"] * 3


def test_a_task_that_works_in_one_store_does_not_end_its_outage_in_another(
    store, leader, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "queue_core")
    run = expire_task.run

    def fails(context, queue):
        if context.catalog is store.catalog:
            raise CatalogUnavailable("the server is away")
        return run(context, queue)

    monkeypatch.setattr(expire_task, "run", fails)
    with Store.open(tmp_path / "other") as other:
        for each in (store, other, store):
            # A message that is too old, so that the task has work.
            queue = make_filled(each, 1, exist_ok=True, message_expiry=3600.0)
            load_earlier(each, 7200)
            tasks_of(each, leader, "expire", timings=ALWAYS).run_due([queue.info])

    told = [each.message for each in caplog.records if "task expire of" in each.message]
    assert told == [
        "task expire of orders failed: the server is away",
        "task expire of 'orders' moved 1",
    ]


@pytest.mark.parametrize("task", [expire_task, sweep_task], ids=["expire", "sweep"])
def test_a_failure_is_over_where_there_is_no_more_work(store, leader, monkeypatch, caplog, task):
    caplog.set_level(logging.INFO, "queue_core")
    queue = make_filled(store, 2, message_expiry=3600.0)
    firing = queue.fire(1)
    load_earlier(store, 7200)
    name = task.__name__.rpartition(".")[2]
    tasks = tasks_of(store, leader, name, timings=ALWAYS)

    def fails(*_):
        raise CatalogUnavailable("the server is away")

    monkeypatch.setattr(task, "run", fails)
    tasks.run_due([queue.info])
    monkeypatch.undo()
    assert queue.admin.expire() == queue.delete(firing) == 1
    tasks.run_due([queue.info])

    told = [each.message for each in caplog.records if f"task {name} of" in each.message]
    assert told == [
        f"task {name} of orders failed: the server is away",
        f"task {name} of 'orders' works again after 0 s",
    ]


def test_a_shovel_that_works_ends_no_failure_of_a_job(store, leader, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "queue_core")
    queue = with_sidelined(store, 3)
    job = queue.start_shovel()

    def fails(*_):
        raise CatalogUnavailable("the server is away")

    monkeypatch.setattr(Jobs, "step", fails)
    Retries(store.catalog, store.storage).run()
    tasks_of(store, leader, "shovel", timings=ALWAYS).run_due([queue.info])
    monkeypatch.undo()
    Retries(store.catalog, store.storage).run()

    told = [each.message for each in caplog.records if f"task job {job} of" in each.message]
    assert told == [
        f"task job {job} of orders failed: the server is away",
        f"task job {job} of 'orders' works again after 0 s",
    ]


def test_one_queue_that_fails_keeps_no_other_from_being_swept(store, leader, monkeypatch):
    stuck(store, "one", 3)
    stuck(store, "two", 2)
    backdate(store, 7200)
    sweep = sweep_task.sweep

    def fails(catalog, queue, **how):
        if queue.name == "one":
            raise CatalogUnavailable("not now")
        return sweep(catalog, queue, **how)

    monkeypatch.setattr(sweep_task, "sweep", fails)
    timings = {"sweep": Timing(600.0, first=0.0)}
    tasks = tasks_of(store, leader, "sweep", timings=timings)

    assert [(done.queue, done.moved) for done in tasks.run_due([])] == [("one", 0), ("two", 2)]
    with store.catalog.read() as connection:
        (row,) = connection.execute(schedule.schedule.select()).all()
    assert row.due_at - row.begun_at < 60e6, "it is tried again soon"


def test_who_does_not_lead_asks_the_leader_to_sweep_as_often_as_it_was_told_to(store, leader):
    other = LeaseLeader(store.catalog, holder="other")
    often = tasks_of(store, other, "sweep", timings={"sweep": Timing(0.001)})
    seldom = tasks_of(store, leader, "sweep")
    assert seldom.run_due([]) == []
    queue = stuck(store, "orders", 3)
    backdate(store, 7200)
    assert seldom.run_due([]) == []

    assert often.run_due([queue.info]) == []

    assert outcomes(seldom.run_due([])) == [("sweep", "orders", 3)]


def test_what_failed_is_due_again_soon_and_keeps_no_other_from_running(
    store, leader, monkeypatch, caplog
):
    one, other = with_sidelined(store), with_sidelined(store, name="other")
    timings = {"shovel": Timing(600.0, first=0.0)}
    tasks = tasks_of(store, leader, "shovel", timings=timings)
    shovel = shovel_task.shovel
    # The log of a process tells each text once.
    text = f"not now, {uuid.uuid4()}"

    def fails_once(catalog, queue, *_):
        monkeypatch.setattr(shovel_task, "shovel", shovel)
        raise CatalogUnavailable(text)

    monkeypatch.setattr(shovel_task, "shovel", fails_once)
    failed, done = tasks.run_due([one.info, other.info])

    assert str(failed.error) == text
    assert done == Ran(task="shovel", queue="other", moved=5)
    assert f"task shovel of orders failed: {text}" in caplog.text
    with store.catalog.read() as connection:
        rows = {r.queue_id: r for r in connection.execute(schedule.schedule.select())}
    retry = rows[one.info.id].due_at - rows[one.info.id].begun_at
    assert retry < 60e6 < rows[other.info.id].due_at - rows[other.info.id].begun_at


def test_one_task_can_be_run_at_once(store, leader):
    queue = with_sidelined(store)
    some = tasks_of(store, leader, shovelful=lambda _: Shovelful(limit=2))
    tasks = tasks_of(store, leader)

    assert run_task(some, "shovel", queue.info) == 2
    assert run_task(tasks, "shovel", queue.info) == 3
    assert run_task(tasks, "vacuum") == 0


def test_an_unknown_task_is_refused(store, leader):
    for wrong, told in (
        (lambda: tasks_of(store, leader, "shovle"), "task='shovle'; did you mean 'shovel'"),
        (lambda: tasks_of(store, leader, timings={"rest": Timing(1.0)}), "task='rest'"),
    ):
        with pytest.raises(BadOption, match=told):
            wrong()


@pytest.mark.spoiled
def test_what_is_damaged_keeps_compaction_from_going_on_only_once(store, leader):
    queue = make_filled(store, 70, each=1, shards=1)
    with store.catalog.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE segments SET data = chunks WHERE id = 1")
    tasks = tasks_of(store, leader, "compact", timings=ALWAYS)

    [failed] = tasks.run_due([queue.info])
    [done] = tasks.run_due([queue.info])

    assert isinstance(failed.error, DamagedSegment)
    assert (done.error, done.moved) == (None, 69)
    assert numbers_of(queue.fire("all").messages) == list(range(1, 70))
