"""How long messages wait and handlers take: as a clock of the test says, whoever asks."""

import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from ignis_source.offset import Offset
from queue_core import ConsumerPool, Later, Store, batch_handler
from queue_core.catalog.record_tables import tallies
from queue_core.catalog.records import samples
from queue_core.catalog.records.timings import merged, take_sample
from queue_core.errors import CatalogUnavailable
from queue_core.upkeep.leader.lease import LeaseLeader
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.upkeep.tasks.sample import sample
from queue_core.values.histogram import Measured
from queue_core.watching.prometheus import page
from tests.contract.test_metrics import scraped
from tests.dump import load_earlier
from tests.factories import make_filled, make_queue, orders
from tests.statements import heard
from tests.storages import ONLY_POSTGRESQL
from tests.unit.values.test_histogram import bucket_of
from tests.waiting import until

pytestmark = pytest.mark.each_catalog

NAMES = ("waiting_p50", "waiting_p99", "handling_p50", "handling_p99")


def measured(store, name="handling", queue="orders", **labels):
    """The buckets of a metric, by their bound."""
    place = {"queue": queue} | labels
    found = {}
    for (metric, pairs), value in scraped(page(store)).items():
        given = dict(pairs)
        bound = given.pop("le", None)
        if metric == f"ignis_{name}_seconds_bucket" and given == place:
            found[float(bound)] = value
    return found


def near(found, true):
    """Whether a quantile is in the bucket of the true one, which may be at its edge."""
    low, high = bucket_of(true)
    return low * 0.9 <= found <= high * 1.1


@pytest.mark.each_catalog(False)
def test_quantiles_are_those_of_a_wall_clock(store):
    queue = make_queue(store, shards=2)
    loaded, took, waited, lock = {}, [], [], threading.Lock()
    naps = np.random.default_rng(7).choice([0.002, 0.03], 60, p=[0.8, 0.2])

    def handle(order):
        began = time.perf_counter()
        with lock:
            waited.append(time.time() - loaded[order["number"]])
        time.sleep(naps[order["number"]])
        with lock:
            took.append(time.perf_counter() - began)
        return True

    for begin in range(0, 60, 20):
        queue.load(orders(20, begin))
        loaded |= dict.fromkeys(range(begin, begin + 20), time.time())
        time.sleep(0.3)
    sample(store.catalog)
    # Without messages ahead, the call begins when the message was fired.
    with ConsumerPool(store, "orders", handle, concurrency=2, batch=1, max_in_flight=2) as pool:
        pool.drain()
    sample(store.catalog)

    (row,) = store.view("queues").to_pylist()
    for name, seconds in (("waiting", waited), ("handling", took)):
        for end, part in (("p50", 0.5), ("p99", 0.99)):
            true = float(np.quantile(seconds, part, method="inverted_cdf"))
            assert near(row[f"{name}_{end}"], true), (name, end, row[f"{name}_{end}"], true)
    assert measured(store, outcome="deleted")[float("inf")] == 60
    assert measured(store, "waiting")[float("inf")] == 60
    total = scraped(page(store))[
        "ignis_handling_seconds_sum", (("outcome", "deleted"), ("queue", "orders"))
    ]
    assert total == pytest.approx(sum(took), rel=0.1)


def test_each_outcome_and_queue_counts_by_itself(store):
    first, second = make_queue(store), make_queue(store, "second")
    make_queue(store, "third")

    @batch_handler
    def batches(batch):
        return pa.array([number % 3 != 0 for number in batch["number"].to_pylist()])

    def single(order):
        if order["number"] == 1:
            raise KeyError("ignored")
        return order["number"] != 2

    first.load(orders(9))
    second.load(orders(4))
    with ConsumerPool(store, "orders", batches) as pool:
        pool.drain()
    with ConsumerPool(store, "second", single, ignorable=KeyError) as pool:
        pool.drain()

    def count(queue, outcome):
        return measured(store, queue=queue, outcome=outcome).get(float("inf"))

    assert (count("orders", "deleted"), count("orders", "sidelined")) == (6, 3)
    outcomes = {name: count("second", name) for name in ("deleted", "ignored", "sidelined")}
    assert outcomes == {"deleted": 2, "ignored": 1, "sidelined": 1}
    # What never happened has no series.
    assert count("orders", "ignored") is None
    assert "third" not in "".join(
        line for line in page(store).splitlines() if "_seconds_bucket" in line
    )


def test_a_message_waits_anew_after_the_sideline_and_not_after_a_reload(store):
    queue = make_filled(store, 1)
    load_earlier(store, 1.5)
    queue.reload(queue.fire(1).ids)
    queue.sideline(queue.fire(1).ids)
    queue.shovel(force=True)
    queue.fire(1)
    store.catalog.timings.flush(store.catalog.write, at_once=True)

    found = measured(store, "waiting")
    assert (found[1.0], found[5.0], found[float("inf")]) == (1, 3, 3)


def test_a_message_waits_anew_after_its_handler_has_put_it_off(store):
    make_filled(store, 1)
    calls = []

    def handler(message):
        calls.append(message)
        if len(calls) == 1:
            raise Later(1.2)
        return True

    with ConsumerPool(store, "orders", handler):
        until(lambda: len(calls) == 2)
    store.catalog.timings.flush(store.catalog.write, at_once=True)
    found = measured(store, "waiting")
    assert (len(calls), found[1.0], found[float("inf")]) == (2, 2, 2)


@pytest.mark.parametrize("moment", ["close", "settle", "side tasks"])
def test_what_was_fired_by_hand_is_told_when_its_process_rests(store, moment, monkeypatch):
    make_filled(store, 5)
    with Store(store.address) as other:
        fired = other.queue("orders").fire(5)
        if moment != "close":
            monkeypatch.setattr("queue_core.catalog.records.timings.FLUSH_SECONDS", 0.0)
            if moment == "settle":
                other.queue("orders").delete(fired)
            else:
                SideTasks(
                    other.catalog, other.storage, LeaseLeader(other.catalog), tasks=[]
                ).run_due([])
            assert measured(store, "waiting")[float("inf")] == 5
    assert measured(store, "waiting")[float("inf")] == 5


def test_a_query_tells_at_its_first_batch_and_when_it_has_no_more(store, session):
    queue, query, at = make_queue(store), session(idleWait="10ms"), Offset("query", 0)
    told = []

    for number in range(4):
        if number < 3:
            queue.load(orders(1, first=number))
        at = query.next(at, None, None)
        told.append(max(measured(store, "waiting").values(), default=0))

    assert told == [1, 1, 1, 3]


def test_another_process_tells_what_this_one_has_measured(store):
    make_queue(store).load(orders(5))
    with ConsumerPool(store, "orders", lambda order: True) as pool:
        pool.drain()
    text = (
        "import sys; from queue_core import Store; from queue_core.watching.prometheus import page"
    )
    place = {"catalog": store.address.catalog, "storage": store.address.storage}
    asked = f"{text}; sys.stdout.write(page(Store.open(**{place!r})))"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert 'ignis_handling_seconds_count{outcome="deleted",queue="orders"} 5.0' in found.stdout


def test_two_processes_add_up(store):
    queue = make_queue(store)
    timings = [type(store.catalog.timings)() for _ in range(2)]
    for each in timings:
        each.add(queue.info.id, Measured.of([0.3, 0.3, 7.0]), "deleted")
    for each in timings:
        each.flush(store.catalog.write, at_once=True)
    found = measured(store, outcome="deleted")
    assert (found[0.5], found[5.0], found[10.0]) == (4, 4, 6)
    assert store.admin.fsck().num_rows == 0


def test_what_cannot_be_written_is_kept_and_what_is_not_due_waits(store):
    queue = make_queue(store)
    timings = store.catalog.timings
    timings.add(queue.info.id, Measured.of([0.3]), "deleted")

    def refused(_):
        raise CatalogUnavailable("no")

    timings.flush(refused, at_once=True)
    timings.flush(store.catalog.write)
    assert measured(store, outcome="deleted") == {}
    timings.flush(store.catalog.write, at_once=True)
    assert measured(store, outcome="deleted")[float("inf")] == 1
    # A queue that was dropped in the meantime.
    timings.add(queue.info.id, Measured.of([0.3]), "deleted")
    queue.admin.deactivate()
    queue.admin.drop()
    timings.flush(store.catalog.write, at_once=True)
    with store.catalog.read() as connection:
        assert connection.execute(tallies.select()).all() == []


@ONLY_POSTGRESQL
def test_a_queue_that_is_dropped_while_it_is_told_of_is_left_out(store):
    queue, timings = make_queue(store), store.catalog.timings
    for _ in range(2):
        timings.add(queue.info.id, Measured.of([0.3]), "deleted")
        timings.flush(store.catalog.write, at_once=True)
    timings.add(queue.info.id, Measured.of([0.3]), "deleted")

    dropped = threading.Event()

    def drop(connection, cursor, statement, *_):
        if "tallies" in statement and "FOR UPDATE" in statement and not dropped.is_set():
            dropped.set()
            with Store(store.address) as other:
                other.queue("orders").admin.deactivate()
                other.queue("orders").admin.drop()

    with heard(store.catalog.engine, before_cursor_execute=drop):
        timings.flush(store.catalog.write, at_once=True)
    assert dropped.is_set()
    assert store.view("queues").num_rows == 0


def test_what_may_be_written_is_not_written_again(store):
    queue, timings = make_queue(store), store.catalog.timings
    timings.add(queue.info.id, Measured.of([0.3]), "deleted")

    def loses_the_answer(work):
        store.catalog.write(work)
        error = CatalogUnavailable("the connection is lost")
        error.outcome_unknown = True
        raise error

    timings.flush(loses_the_answer, at_once=True)
    timings.flush(store.catalog.write, at_once=True)
    assert measured(store, outcome="deleted")[float("inf")] == 1


def test_a_longer_time_has_the_quantiles_of_all_its_messages(store):
    queue, begin = make_queue(store), 1_000_000_020
    timings = store.catalog.timings
    for at, seconds in ((5, 0.3), (15, 0.3), (25, 40.0), (65, 40.0)):
        timings.add(queue.info.id, Measured.of([seconds]), "deleted")
        timings.flush(store.catalog.write, at_once=True)
        (part,) = store.catalog.write(take_sample).values()
        row = {"seconds": 10, "taken_at": (begin + at) * 1_000_000, "queue_id": queue.info.id}
        given = [row | merged([part])]
        store.catalog.write(lambda connection, given=given: samples.add(connection, given))
    store.catalog.write(lambda connection: samples.roll_up(connection, (begin + 125) * 1_000_000))

    found = [row for row in store.view("samples").to_pylist() if row["seconds"] == 60]
    for minute, wanted in zip(found, ((0.3, 40.0), (40.0, 40.0)), strict=True):
        for end, seconds in zip(("p50", "p99"), wanted, strict=True):
            low, high = bucket_of(seconds)
            assert low <= minute[f"handling_{end}"] <= high
        assert minute["waiting_p50"] is None
    assert store.catalog.write(take_sample) == {}
