"""A person moves the sideline to another queue, or back to main: at once, or as a job."""

import logging
import time
from functools import partial

import pyarrow as pa
import pytest

from queue_core import Store
from queue_core.catalog.record_tables import jobs as job_table
from queue_core.catalog.records import jobs as job_rows
from queue_core.errors import (
    BadOption,
    BadOutcome,
    BadSelector,
    DamagedSegment,
    NoSuchQueue,
    QueueDeactivated,
    SchemaMismatch,
    StorageUnavailable,
)
from queue_core.segments.storage import Storage
from queue_core.selection import fifo_scan
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.verbs.capacity import bounds
from queue_core.verbs.operator import redriving
from queue_core.watching import present
from queue_core.watching.problems import of_queue
from tests.books import audit, leftover_files
from tests.factories import ORDERS, aside, main, make_queue, orders, with_sidelined
from tests.job_steps import make_late, run_job, the_job
from tests.waiting import Caller, until

# at once


def test_messages_go_to_another_queue_in_one_transaction(store, inlined):
    queue = with_sidelined(store, 20, shards=3, key="customer")
    # Columns are matched by name.
    names = ("note", "customer", "amount", "number")
    wide = pa.schema([ORDERS.field(n) if n != "note" else (n, pa.string()) for n in names])
    other = make_queue(store, "other", wide, key="number", shards=2)
    chosen = {"selector": "number < 12"}
    assert queue.shovel(dry_run=True) == 20
    assert queue.shovel(4, dry_run=True) == queue.shovel(4, **chosen, dry_run=True) == 4
    assert queue.shovel(**chosen, dry_run=True) == 12
    assert len(aside(queue)) == 20

    assert queue.shovel(to="other", **chosen) == 12
    assert (main(other), aside(queue)) == (list(range(12)), list(range(12, 20)))
    assert other.browse().column("note").null_count == 12
    assert set(other.browse().column("_attempt").to_pylist()) == {0}
    assert other.browse().column("_queue").to_pylist() == ["other"] * 12
    moved = [r["to"] for r in store.view("reports").to_pylist() if r["task"] == "shovel"]
    assert set(moved) == {"queue other"}
    shovelled = store.view("shards", "orders").column("shovelled").to_pylist()
    assert sum(shovelled) == 12
    store.admin.vacuum(grace=0)
    audit(store)


def test_a_limit_and_a_rate_are_kept(store):
    queue = with_sidelined(store, 10)
    make_queue(store, "other")
    begin = time.monotonic()
    assert queue.shovel(6, to="other", rate=4) == 6
    assert 0.9 <= time.monotonic() - begin < 30
    assert aside(queue) == [6, 7, 8, 9]


def test_the_limit_of_the_settings_is_kept_and_the_rate_of_what_returns_to_main(store):
    queue = with_sidelined(store, 10, shovel_limit=2, shovel_rate=2.0)
    make_queue(store, "other")
    ids = queue.browse(magazine="sideline").column("_message_id").to_pylist()
    assert queue.shovel(dry_run=True) == queue.shovel(to="other", dry_run=True) == 2
    assert queue.shovel(5, dry_run=True) == 5

    assert queue.shovel(to="other") == 2
    assert queue.shovel(ids=ids) == 2
    begin = time.monotonic()
    assert queue.shovel(4, ids=ids) == 4
    assert time.monotonic() - begin >= 0.9, "two messages a second"
    assert len(aside(queue)) == 2


def test_a_full_queue_takes_only_what_it_has_room_for(store):
    queue = with_sidelined(store, 10)
    make_queue(store, "other", max_size=6)
    assert queue.shovel(to="other") == 6
    assert len(aside(queue)) == 4
    assert leftover_files(store) == set()


def test_a_large_sideline_goes_in_parts(store, monkeypatch):
    monkeypatch.setattr(redriving, "STEP_BYTES", 2000)
    queue = with_sidelined(store, 500, shards=3)
    other = make_queue(store, "other")
    assert queue.shovel(to="other") == 500
    assert main(other) == list(range(500))


def test_a_message_that_is_fired_meanwhile_stays(store, monkeypatch):
    queue = with_sidelined(store, 10)
    other = make_queue(store, "other")
    read, taken = redriving.read_table, []

    def read_and_fire(*args):
        if not taken:
            taken.append(queue.fire(3, magazine="sideline"))
        return read(*args)

    monkeypatch.setattr(redriving, "read_table", read_and_fire)
    assert queue.shovel(to="other") == 7
    assert main(other) == [3, 4, 5, 6, 7, 8, 9]
    assert queue.delete(taken[0]) == 3


def test_messages_that_came_during_the_shovel_stay(store, monkeypatch):
    monkeypatch.setattr(redriving, "STEP_MESSAGES", 3)
    queue = with_sidelined(store, 6)
    other = make_queue(store, "other")
    queue.load(orders(2, 6))
    real = redriving.conform

    def and_sideline(*args, **how):
        queue.sideline(queue.fire("all"))
        return real(*args, **how)

    monkeypatch.setattr(redriving, "conform", and_sideline)
    assert queue.shovel(to="other") == 6
    assert (main(other), aside(queue)) == ([0, 1, 2, 3, 4, 5], [6, 7])


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"policy": "latest", "key": "customer"}, BadOption, "has a policy or dedup"),
        ({"dedup": ["number"], "key": "number"}, BadOption, "has a policy or dedup"),
        ({"max_size": 5, "overflow": "ring"}, BadOption, "is a ring"),
        ({"max_size": 0}, BadOption, "keeps no messages"),
        ({"schema": pa.schema([("number", pa.int64())])}, SchemaMismatch, "customer"),
    ],
)
def test_a_target_that_cannot_take_them_is_refused(store, settings, error, text):
    queue = with_sidelined(store, 2)
    make_queue(store, "other", **settings)
    for move in (queue.shovel, queue.start_shovel):
        with pytest.raises(error, match=text):
            move(to="other")
    assert aside(queue) == [0, 1]
    assert store.view("jobs").num_rows == 0


def test_a_subscription_is_refused_before_anything_is_moved_or_counted(store):
    queue = with_sidelined(store, 2)
    make_queue(store, "other", log="7 days")
    store.subscribe("reader", to="other")
    for move in (queue.shovel, queue.start_shovel, partial(queue.shovel, dry_run=True)):
        with pytest.raises(BadOption, match="'reader' is a subscription"):
            move(to="reader")
    assert aside(queue) == [0, 1]
    assert store.view("jobs").num_rows == 0


def test_a_target_whose_settings_change_meanwhile_is_checked_again(store, monkeypatch, in_files):
    monkeypatch.setattr(redriving, "STEP_MESSAGES", 2)
    queue = with_sidelined(store, 6)
    other = make_queue(store, "other", key="number")
    # The second attempt of the first step changes nothing.
    real, changes = redriving.conform, [{"sweep_after": 60.0}, {}, {"dedup": ["number"]}]

    def and_change(*args, **how):
        other.admin.change_settings(**changes.pop(0))
        return real(*args, **how)

    monkeypatch.setattr(redriving, "conform", and_change)
    with pytest.raises(BadOption, match="has a policy or dedup"):
        queue.shovel(to="other")
    assert (main(other), aside(queue)) == ([0, 1], [2, 3, 4, 5])
    assert leftover_files(store) == set()


def test_bad_wishes_are_refused(store):
    queue = with_sidelined(store, 2)
    make_queue(store, "other").admin.deactivate()

    with pytest.raises(QueueDeactivated):
        queue.shovel(to="other")
    with pytest.raises(NoSuchQueue, match="did you mean 'other'"):
        queue.start_shovel(to="othr")
    with pytest.raises(BadSelector):
        queue.start_shovel(selector="nope = 1")
    with pytest.raises(BadOption, match="rate="):
        queue.start_shovel(rate=0)
    with pytest.raises(BadOption, match="limit="):
        queue.shovel(0, dry_run=True)
    with pytest.raises(BadOption, match="no such job"):
        store.admin.cancel("ffff")
    for shovel in (queue.shovel, queue.start_shovel):
        with pytest.raises(BadOption, match="to=5: give the name of a queue"):
            shovel(to=5)
    # The name of the queue itself is main.
    assert queue.shovel(to="orders") == 2
    assert main(queue) == [0, 1]


@pytest.mark.parametrize("to", [None, "other"])
def test_ids_a_selector_a_limit_and_dead_messages_go_together(store, to, monkeypatch):
    monkeypatch.setattr(fifo_scan, "STEP_ROWS", (1, 1))
    queue = with_sidelined(store, 30, shards=3)
    make_queue(store, "other")
    rows = queue.browse(magazine="sideline").sort_by("number")
    ids = rows.column("_message_id").to_pylist()
    queue.choose(ids[:5]).requeue()
    queue.choose(ids[:5]).sideline("dead now")
    chosen = {"ids": ids[:20], "selector": "number >= 3"}

    assert queue.shovel(**chosen, dry_run=True) == 15
    assert queue.shovel(**chosen, force=True, dry_run=True) == 17
    assert queue.shovel(4, **chosen, dry_run=True) == 4
    # Older ones that match, and were not chosen, do not count.
    assert queue.shovel(4, ids=ids[10:20], selector="number >= 3", dry_run=True) == 4
    assert queue.shovel(4, **chosen, force=True, to=to) == 4
    job = queue.start_shovel(**chosen, to=to)
    assert (the_job(store)["by_id"], the_job(store)["selector"]) == (True, "number >= 3")
    # A process that knows no more than the row.
    run_job(store, job)

    moved = main(store.queue(to or "orders"))
    assert (len(moved), set(moved) <= set(range(3, 20))) == (the_job(store)["moved"] + 4, True)
    assert {0, 1, 2, *range(20, 30)} <= set(aside(queue))
    with pytest.raises(BadOutcome, match="is not of queue"):
        queue.start_shovel(ids=[ids[0] + (1 << 50)])
    assert queue.shovel(ids=[]) == 0
    audit(store)


# jobs


def test_a_job_says_how_fast_it_is_and_how_long_it_takes(store):
    queue = with_sidelined(store, 100)
    job = queue.start_shovel(rate=20)
    row = the_job(store)
    assert (row["moved_per_s"], row["seconds_left"]) == (20, 5)
    begun = job_table.update().values(begun_at=job_table.c.begun_at - 100_000_000, moved=50)
    store.catalog.write(lambda connection: connection.execute(begun))
    row = the_job(store)
    assert row["moved_per_s"] == pytest.approx(0.5, abs=0.05)
    assert row["seconds_left"] == pytest.approx(100, abs=9)
    store.admin.cancel(job)
    assert the_job(store)["seconds_left"] is None


@pytest.mark.parametrize("to", [None, "other"])
def test_a_process_with_side_tasks_runs_a_job(store, to, caplog):
    caplog.set_level(logging.INFO, "queue_core")
    queue = with_sidelined(store, 30, shards=2)
    make_queue(store, "other")
    job = queue.start_shovel(25, to=to, selector="number >= 2", who="Ann")
    row = the_job(store)
    assert (row["job"], row["state"], row["moved"], row["total"]) == (job, "waiting", 0, 25)
    assert (row["queue"], row["target"], row["selector"]) == ("orders", to, "number >= 2")
    assert (row["limit"], row["rate"], row["who"]) == (25, None, "Ann")

    with store.side_tasks("orders", tasks=["shovel"]):
        until(lambda: the_job(store)["state"] == "done")

    assert the_job(store)["moved"] == 25 == store.queue(to or "orders").browse().num_rows
    assert len(aside(queue)) == 5
    assert the_job(store)["ended_at"] is not None
    assert not store.admin.cancel(job)
    begun, ended = (each for each in caplog.records if getattr(each, "job", None) == job)
    assert (begun.queue, begun.moved, ended.state) == ("orders", 0, "done")
    acts = [each for each in caplog.records if getattr(each, "verb", None) == "shovel"]
    assert [each.message.split()[-1] for each in acts] == ["begins", "ended"]


def test_a_job_moves_what_was_there_when_it_began(store):
    queue = with_sidelined(store, 4)
    job = queue.start_shovel()
    queue.load(orders(2, 4))
    queue.sideline(queue.fire(2))
    run_job(store, job)
    assert (main(queue), aside(queue)) == ([0, 1, 2, 3], [4, 5])


def test_a_job_keeps_its_rate_and_is_cancelled_between_two_steps(store):
    queue = with_sidelined(store, 1000)
    job = queue.start_shovel(rate=10)
    begin = time.monotonic()
    running = Caller(lambda: run_job(store, job))
    until(lambda: the_job(store)["moved"] >= 20)
    assert time.monotonic() - begin > 0.9

    assert store.admin.cancel(job)
    running.done()
    row = the_job(store)
    assert row["state"] == "cancelled"
    assert row["moved"] == len(main(queue)) == 1000 - len(aside(queue))
    # A step of ten messages a second.
    assert row["moved"] <= 10 * (time.monotonic() - begin) + 20
    assert not store.admin.cancel(job)


def test_a_job_waits_for_room(store):
    queue = with_sidelined(store, 6)
    other = make_queue(store, "other", max_size=4)
    job = queue.start_shovel(to="other")
    running = Caller(lambda: run_job(store, job))
    until(lambda: the_job(store)["error"])
    row = the_job(store)
    assert (row["state"], row["moved"], row["seconds_left"]) == ("running", 4, None)
    assert row["error"] == "queue 'other' has no room for its messages"
    (still,) = (each for each in of_queue(present.read_queue(store.catalog, "orders")))
    assert (still.kind, still.action, still.fields) == ("still", "cancel", {"job": job})
    assert f"{job} does not move: queue 'other' has no room" in still.text
    other.delete(other.fire("all"))
    running.done()

    row = the_job(store)
    assert (row["state"], row["error"]) == ("done", None)
    assert main(other) == [4, 5]


def test_a_job_ends_at_a_message_for_which_there_is_never_room(store):
    queue = with_sidelined(store, 2)
    make_queue(store, "other", max_bytes=10)
    run_job(store, queue.start_shovel(to="other"))

    row = the_job(store)
    assert (row["state"], row["moved"]) == ("failed", 0)
    assert row["error"].startswith("queue 'other' never has room for a load of")
    with pytest.raises(BadOption, match="or raise the bound"):
        queue.shovel(to="other")
    assert len(aside(queue)) == 2


def test_a_job_keeps_a_bound_that_is_set_while_it_runs(store):
    queue = with_sidelined(store, 6)
    queue.start_shovel(rate=2)
    steps = Retries(store.catalog, store.storage)
    steps.run()
    assert len(main(queue)) == 2

    queue.admin.change_settings(max_size=3)
    for _ in range(2):
        make_late(store)
        steps.run()
    assert len(main(queue)) == the_job(store)["moved"] == 3
    assert the_job(store)["error"] == "queue 'orders' has no room for its messages"


def test_only_one_process_runs_a_job_and_another_one_continues_it(store, address, monkeypatch):
    queue = with_sidelined(store, 4)
    job = queue.start_shovel(rate=2)
    real, steps = bounds.acquire, []

    def dies(*args):
        steps.append(1)
        if len(steps) > 1:
            raise KeyboardInterrupt
        return real(*args)

    first = Retries(store.catalog, store.storage)
    with monkeypatch.context() as patch:
        patch.setattr(bounds, "acquire", dies)
        with pytest.raises(KeyboardInterrupt):
            run_job(store, job, first)
    assert (the_job(store)["state"], the_job(store)["moved"]) == ("running", 2)
    with Store(address) as other:
        second = Retries(other.catalog, other.storage)
        ran, left = second.run()
        assert (ran, left > 1) == ([], True)
        make_late(store)
        run_job(other, job)

    assert (the_job(store)["state"], the_job(store)["moved"]) == ("done", 4)
    assert main(queue) == [0, 1, 2, 3]
    first.run()
    assert the_job(store)["moved"] == 4


def test_a_process_forgets_jobs_that_were_cancelled_elsewhere_and_pauses_that_are_over(store):
    job = with_sidelined(store, 6).start_shovel(rate=2)
    steps = Retries(store.catalog, store.storage)
    steps.run()
    assert [*steps._jobs._begun] == [job]

    store.admin.cancel(job)
    steps.run()
    assert steps._jobs._begun == {}
    steps.rest("orders", 0.0, job)
    steps.rest("orders", 60.0)
    assert [*steps._resting] == [("orders", None)]


def test_two_processes_that_have_found_a_job_do_not_both_begin_it(store):
    job_id = with_sidelined(store, 5).start_shovel()
    with store.catalog.read() as connection:
        job = job_rows.find(connection, job_id)

    store.catalog.write(partial(job_rows.begin, job=job))
    with pytest.raises(job_rows.NotMine):
        store.catalog.write(partial(job_rows.begin, job=job))


def test_a_process_that_only_stalled_moves_nothing_beside_its_successor(store, address):
    queue = with_sidelined(store, 6)
    queue.start_shovel(rate=2)
    stalled = Retries(store.catalog, store.storage)
    stalled.run()
    with Store(address) as other:
        make_late(store)
        Retries(other.catalog, other.storage).run()
    assert the_job(store)["moved"] == 4

    make_late(store)
    stalled.run()
    assert the_job(store)["moved"] == 4 == len(main(queue))


def test_a_job_that_cannot_go_on_shows_why(store):
    queue = with_sidelined(store, 2)
    other = make_queue(store, "other")
    job = queue.start_shovel(to="other")
    other.admin.deactivate()

    run_job(store, job)
    assert the_job(store)["state"] == "failed"
    assert "was deactivated" in the_job(store)["error"]
    assert aside(queue) == [0, 1]


@pytest.mark.spoiled
def test_damage_of_which_no_report_can_be_written_ends_a_shovel_and_a_job(
    store, monkeypatch, in_files
):
    """Nothing quarantines it, so that each further attempt would meet it again."""

    def refuse(*_):
        raise StorageUnavailable("the folder is read-only")

    queue = with_sidelined(store, 2)
    make_queue(store, "other")
    for location in store.storage.list():
        store.storage.remove(location)
    monkeypatch.setattr(Storage, "report_damage", refuse)

    with pytest.raises(DamagedSegment, match="is missing"):
        queue.shovel(to="other")
    run_job(store, queue.start_shovel(to="other"))
    assert the_job(store)["state"] == "failed"
    assert "is missing" in the_job(store)["error"]


def test_a_process_that_ends_leaves_its_job_to_others(store):
    queue = with_sidelined(store, 500)
    queue.start_shovel(rate=10)

    with store.side_tasks(tasks=["shovel"]):
        until(lambda: the_job(store)["moved"] > 0)
    assert the_job(store)["state"] == "running"
    assert the_job(store)["moved"] == len(main(queue))
    make_late(store)
    moved = the_job(store)["moved"]
    Retries(store.catalog, store.storage).run()
    assert the_job(store)["moved"] == moved + 10


def test_ended_jobs_are_kept_for_a_week(store):
    queue = with_sidelined(store, 2)
    done, waiting = queue.start_shovel(), queue.start_shovel(to="orders")
    run_job(store, done)
    later = store.catalog.now() + 1_000_000

    store.catalog.write(lambda c: job_rows.forget(c, later))
    assert store.view("jobs", "orders").column("job").to_pylist() == [waiting]
    queue.admin.deactivate()
    assert store.view("jobs").num_rows == 1
